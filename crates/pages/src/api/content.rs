//! Reading a request's content for a page: once, in one form, and cached for later calls.

use super::Api;
use super::body::{BodyLimits, Form, parse_urlencoded, read_multipart, read_whole};
use super::budget::RequestBudget;
use super::form::is_media_type;
use super::multipart::parse_boundary;
use super::reads;
use super::refusal::{PageRefusal, RefusalCell};
use crate::exchange::{Beside, Exchange, Held};
use crate::sandbox::json::mark_object;
use crate::sandbox::wait::NativeError;
use flatout_handler::content::{Offers, RequestContent};
use mlua::{Lua, Table};
use std::cell::RefCell;
use std::rc::Rc;

/// The state of a request's content.
#[derive(Clone, Default)]
enum ContentState {
    #[default]
    Unread,
    /// A suspended coroutine of the page is reading the content.
    Reading,
    Whole(Rc<[u8]>),
    Form(Rc<ReadForm>),
    Refused(PageRefusal),
}

/// The cached content of a request, stored in its exchange.
#[derive(Clone, Default)]
struct ContentCache {
    state: Rc<RefCell<ContentState>>,
    /// The cached content's share of the budget and of the run's memory limit.
    held: Rc<RefCell<Option<(RequestBudget, Held)>>>,
}

/// A form, and the Luau table with its fields.
#[derive(Default)]
pub(super) struct ReadForm {
    pub(super) form: Form,
    fields: RefCell<Option<Table>>,
}

impl ReadForm {
    /// Returns a table with the first value of each name.
    pub(super) fn fields(&self, lua: &Lua) -> mlua::Result<Table> {
        if let Some(table) = &*self.fields.borrow() {
            return Ok(table.clone());
        }
        let table = lua.create_table()?;
        for (name, value) in &self.form.fields {
            let name = lua.create_string(name)?;
            if !table.contains_key(&name)? {
                table.raw_set(name, lua.create_string(value)?)?;
            }
        }
        mark_object(lua, &table)?;
        *self.fields.borrow_mut() = Some(table.clone());
        Ok(table)
    }

    /// Returns a table with all values of a name.
    pub(super) fn all(&self, lua: &Lua, name: &[u8]) -> mlua::Result<Table> {
        let values = self.form.fields.iter().filter(|(known, _)| **known == *name);
        lua.create_sequence_from(values.map(|(_, value)| mlua::BString::from(&value[..])))
    }

    /// Returns the first value of a name.
    pub(super) fn first(&self, name: &[u8]) -> Option<&[u8]> {
        self.form.fields.iter().find_map(|(known, value)| (**known == *name).then_some(&value[..]))
    }
}

/// State shared by the functions that read the content of a request.
pub(super) struct ContentReading {
    api: Rc<Api>,
    limits: BodyLimits,
    pub(super) content_type: Vec<u8>,
    content: Option<RequestContent>,
    kept: ContentCache,
    share: RequestBudget,
    beside: Beside,
    pub(super) refused: RefusalCell,
}

/// Prepares reading the content of the current request, and takes the content from the connection unless it has already
/// been read. A response that depends on content is private to the sender, because caches do not include content in
/// their keys.
pub(super) fn begin(api: &Rc<Api>, exchange: &mut Exchange) -> Result<ContentReading, NativeError> {
    if exchange.offers.is_some() {
        reads::note_private(exchange)?;
    }
    let kept = exchange.slot::<ContentCache>().clone();
    let unread = matches!(*kept.state.borrow(), ContentState::Unread);
    let content = exchange.offers.as_ref().filter(|_| unread).and_then(Offers::take_content);
    Ok(ContentReading {
        api: Rc::clone(api),
        limits: api.settings.body,
        content_type: exchange.facts.field("content-type").unwrap_or_default().to_vec(),
        content,
        kept,
        share: api.settings.budget.share(exchange.facts.client().map(|client| client.ip())),
        beside: Beside::of(exchange),
        refused: RefusalCell::of(exchange),
    })
}

/// Reads the request's form, which is empty if there is no content.
pub(super) async fn read_form(mut reading: ContentReading) -> Result<Rc<ReadForm>, NativeError> {
    let state = reading.kept.state.replace(ContentState::Reading);
    let read = match state {
        ContentState::Form(form) => Ok(form),
        ContentState::Refused(refusal) => Err(refusal),
        ContentState::Reading => return Err("the content is already being read".into()),
        ContentState::Whole(text) => form_of(parse_whole(&reading.content_type, &text)),
        ContentState::Unread => match reading.content.take() {
            None => Ok(Rc::default()),
            Some(content) => form_of(receive_form(&mut reading, content).await),
        },
    };
    let bytes = read.as_ref().map_or(0, |form: &Rc<ReadForm>| form.form.held_bytes());
    keep(reading, read, bytes, ContentState::Form)
}

/// Reads the content as a string.
pub(super) async fn read_text(mut reading: ContentReading) -> Result<Rc<[u8]>, NativeError> {
    let state = reading.kept.state.replace(ContentState::Reading);
    let read = match state {
        ContentState::Whole(text) => Ok(text),
        ContentState::Refused(refusal) => Err(refusal),
        ContentState::Reading => return Err("the content is already being read".into()),
        ContentState::Form(form) => {
            reading.kept.state.replace(ContentState::Form(form));
            return Err("the content was already read as a form".into());
        }
        ContentState::Unread => match reading.content.take() {
            None => Ok(Rc::from(&b""[..])),
            Some(content) => read_whole(content, reading.limits, &mut reading.share).await.map(Rc::from),
        },
    };
    let bytes = read.as_ref().map_or(0, |text: &Rc<[u8]>| text.len());
    keep(reading, read, bytes, ContentState::Whole)
}

fn form_of(form: Result<Form, PageRefusal>) -> Result<Rc<ReadForm>, PageRefusal> {
    form.map(|form| Rc::new(ReadForm { form, fields: RefCell::default() }))
}

/// Caches the result, of which `bytes` are in memory, or the refusal.
fn keep<T: Clone>(
    reading: ContentReading,
    read: Result<T, PageRefusal>,
    bytes: usize,
    state: fn(T) -> ContentState,
) -> Result<T, NativeError> {
    let before = reading.kept.state.replace(match &read {
        Ok(value) => state(value.clone()),
        Err(refusal) => ContentState::Refused(*refusal),
    });
    debug_assert!(matches!(before, ContentState::Reading));
    let mut held = reading.kept.held.borrow_mut();
    // Results that were dropped earlier no longer count. Their share of the budget is used for the new result.
    let before = held.take().map(|(share, _)| share);
    if read.is_ok() {
        *held = Some((before.unwrap_or(reading.share), reading.beside.hold(bytes)));
    }
    drop(held);
    read.map_err(|refusal| reading.refused.refuse(refusal))
}

fn is_urlencoded(content_type: &[u8]) -> bool {
    is_media_type(content_type, "application/x-www-form-urlencoded")
}

fn parse_whole(content_type: &[u8], text: &[u8]) -> Result<Form, PageRefusal> {
    match text {
        [] => Ok(Form::default()),
        text if is_urlencoded(content_type) => parse_urlencoded(text),
        _ => Err(PageRefusal::ContentType),
    }
}

async fn receive_form(reading: &mut ContentReading, content: RequestContent) -> Result<Form, PageRefusal> {
    if is_urlencoded(&reading.content_type) {
        return parse_urlencoded(&read_whole(content, reading.limits, &mut reading.share).await?);
    }
    match parse_boundary(&reading.content_type) {
        Some(Ok(boundary)) => {
            let folder = &reading.api.settings.spool_folder;
            read_multipart(content, &boundary, reading.limits, folder, &mut reading.share).await
        }
        Some(Err(_)) => Err(PageRefusal::FormMalformed),
        None => Err(PageRefusal::ContentType),
    }
}

/// Returns the form of the current request, if it has been read.
pub(super) fn known_form(exchange: &mut Exchange) -> Option<Rc<ReadForm>> {
    match &*exchange.slot_if::<ContentCache>()?.state.borrow() {
        ContentState::Form(form) => Some(Rc::clone(form)),
        _ => None,
    }
}
