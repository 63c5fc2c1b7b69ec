//! Reading a request's content for a page: as a whole, or as a form whose files are spooled.

use super::budget::{Exhausted, RequestBudget};
use super::form::{TooManyFields, parse_form};
use super::multipart::{MultipartDecoder, MultipartStop, PartHead, Parts};
use super::refusal::PageRefusal;
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::ending::CloseReason;
use flatout_os::spool::{Spool, SpoolFile};
use std::future::poll_fn;
use std::path::Path;
use std::rc::Rc;

/// Maximum number of parts in a form, files and fields together.
const PARTS_MAX: usize = 1024;
/// Maximum number of files in a form.
const FILES_MAX: usize = 64;
/// Maximum length of a field's name and of a file's name, in bytes.
const NAME_BYTES_MAX: usize = 1024;

flatout_reason::defaults! {
    /// Limits on a request's content.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BodyLimits {
        /// Maximum size of all fields of a form together, or of content that is read as a whole, in bytes
        /// (`form-limit`).
        pub form_bytes_max: u64 = 1 << 20,
        /// Maximum size of all files of a form together, in bytes (`upload-limit`).
        pub upload_bytes_max: u64 = 10 << 20,
    }
}

impl From<Exhausted> for PageRefusal {
    fn from(_: Exhausted) -> Self {
        Self::ContentBudget
    }
}

/// The name and the value of a form field.
pub(crate) type FormField = (Box<[u8]>, Box<[u8]>);

/// A parsed form.
#[derive(Debug, Default)]
pub(crate) struct Form {
    /// Name and value of each field, in order of arrival.
    pub(crate) fields: Vec<FormField>,
    /// The uploaded files, in order of arrival.
    pub(crate) files: Vec<File>,
}

impl Form {
    /// Approximate memory use of the form, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| name.len() + value.len() + size_of::<FormField>());
        let files = self.files.iter().map(|file| file.spool.held_bytes() + size_of::<File>());
        fields.sum::<usize>() + files.sum::<usize>()
    }
}

/// An uploaded file.
#[derive(Debug)]
pub(crate) struct File {
    /// The name of the form field.
    pub(crate) field: Box<[u8]>,
    /// The file's name as sent by the browser, without folders.
    pub(crate) name: Box<[u8]>,
    /// The media type as sent by the browser, which is not verified.
    pub(crate) media_type: Option<Box<[u8]>>,
    /// The content of the file.
    pub(crate) spool: Rc<Spool>,
}

/// Reads all of `content`, and accounts for it in `share`.
pub(crate) async fn read_whole(
    content: RequestContent,
    limits: BodyLimits,
    share: &mut RequestBudget,
) -> Result<Vec<u8>, PageRefusal> {
    let refuse = |reason: CloseReason| reason.content_fault(PageRefusal::FormTooLarge, PageRefusal::ContentCut);
    let content = content.up_to(limits.form_bytes_max).map_err(refuse)?;
    let mut whole = Vec::new();
    loop {
        match poll_fn(|context| content.poll_piece(context)).await {
            ContentPiece::Bytes(bytes) => {
                share.grow(bytes.len())?;
                whole.extend_from_slice(&bytes);
            }
            ContentPiece::End(_) => return Ok(whole),
            ContentPiece::Cut(reason) => return Err(refuse(reason)),
        }
    }
}

/// Checks the number of fields of a URL-encoded form.
pub(crate) fn check_urlencoded(encoded: &[u8]) -> Result<(), PageRefusal> {
    match parse_form(encoded).find_map(Result::err) {
        Some(TooManyFields) => Err(PageRefusal::FormTooManyFields),
        None => Ok(()),
    }
}

/// Parses `multipart/form-data` content with `boundary` that was received as a whole. Large files are spooled in
/// `folder`, and everything is accounted for in `share`.
pub(crate) fn parse_multipart(
    content: &[u8],
    boundary: &[u8],
    limits: BodyLimits,
    folder: &Path,
    share: &mut RequestBudget,
) -> Result<Form, PageRefusal> {
    let mut decoder = MultipartDecoder::new(boundary);
    let mut collector = Collector::new(limits, folder, share);
    decoder.feed(content, &mut collector).map_err(stopped)?;
    decoder.finish().map_err(|_| PageRefusal::FormMalformed)?;
    Ok(collector.form)
}

fn stopped(stop: MultipartStop<PageRefusal>) -> PageRefusal {
    match stop {
        MultipartStop::Malformed(_) => PageRefusal::FormMalformed,
        MultipartStop::Refused(refusal) => refusal,
    }
}

/// Reads `content` as `multipart/form-data` with `boundary`. Large files are spooled in `folder`, and everything is
/// accounted for in `share`.
pub(crate) async fn read_multipart(
    content: RequestContent,
    boundary: &[u8],
    limits: BodyLimits,
    folder: &Path,
    share: &mut RequestBudget,
) -> Result<Form, PageRefusal> {
    // Delimiters and part heads add to the size. The exact limits are enforced per part.
    let all_max = limits.form_bytes_max.saturating_add(limits.upload_bytes_max).saturating_add(1 << 20);
    let refuse = |reason: CloseReason| reason.content_fault(PageRefusal::UploadTooLarge, PageRefusal::ContentCut);
    let content = content.up_to(all_max).map_err(refuse)?;
    let mut decoder = MultipartDecoder::new(boundary);
    let mut collector = Collector::new(limits, folder, share);
    loop {
        match poll_fn(|context| content.poll_piece(context)).await {
            ContentPiece::Bytes(bytes) => {
                decoder.feed(&bytes, &mut collector).map_err(stopped)?;
            }
            ContentPiece::End(_) => break,
            ContentPiece::Cut(reason) => return Err(refuse(reason)),
        }
    }
    decoder.finish().map_err(|_| PageRefusal::FormMalformed)?;
    Ok(collector.form)
}

/// Collects the parts of a form within its limits.
struct Collector<'a> {
    form: Form,
    limits: BodyLimits,
    share: &'a mut RequestBudget,
    file: Rc<SpoolFile>,
    parts: usize,
    form_bytes: u64,
    upload_bytes: u64,
    now: FormPart,
}

enum FormPart {
    None,
    Field(Vec<u8>, Vec<u8>),
    File,
    /// A file field in which no file was chosen: browsers send an empty part with an empty file name.
    Unchosen,
}

impl<'a> Collector<'a> {
    fn new(limits: BodyLimits, folder: &Path, share: &'a mut RequestBudget) -> Self {
        Self {
            form: Form::default(),
            limits,
            share,
            file: SpoolFile::new(Some(folder)),
            parts: 0,
            form_bytes: 0,
            upload_bytes: 0,
            now: FormPart::None,
        }
    }

    fn add_form_bytes(&mut self, count: usize) -> Result<(), PageRefusal> {
        self.form_bytes += count as u64;
        if self.form_bytes > self.limits.form_bytes_max {
            return Err(PageRefusal::FormTooLarge);
        }
        Ok(self.share.grow(count)?)
    }
}

impl Parts for Collector<'_> {
    type Refusal = PageRefusal;

    fn begin_part(&mut self, head: PartHead) -> Result<(), PageRefusal> {
        let head = PartHead {
            name: replace_invalid(head.name),
            file_name: head.file_name.map(replace_invalid),
            media_type: head.media_type.map(replace_invalid),
        };
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(PageRefusal::FormTooManyFields);
        }
        if head.name.len() > NAME_BYTES_MAX || head.file_name.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return Err(PageRefusal::FormMalformed);
        }
        self.add_form_bytes(head.name.len())?;
        self.now = match head.file_name {
            None => FormPart::Field(head.name, Vec::new()),
            Some(name) if name.is_empty() => FormPart::Unchosen,
            Some(_) if self.form.files.len() == FILES_MAX => return Err(PageRefusal::FormTooManyFields),
            Some(name) => {
                self.form.files.push(File {
                    field: head.name.into(),
                    name: bare_name(&name).into(),
                    media_type: head.media_type.map(Into::into),
                    spool: Rc::default(),
                });
                FormPart::File
            }
        };
        Ok(())
    }

    fn part_bytes(&mut self, bytes: &[u8]) -> Result<(), PageRefusal> {
        match &mut self.now {
            FormPart::Field(_, value) => {
                value.extend_from_slice(bytes);
                self.add_form_bytes(bytes.len())
            }
            FormPart::File => {
                self.upload_bytes += bytes.len() as u64;
                if self.upload_bytes > self.limits.upload_bytes_max {
                    return Err(PageRefusal::UploadTooLarge);
                }
                self.share.grow(bytes.len())?;
                let Some(file) = self.form.files.last() else { return Ok(()) };
                file.spool.append(bytes, &self.file).map_err(|_| PageRefusal::SpoolFailed)
            }
            // The content of a part without a chosen file is counted and discarded.
            FormPart::None | FormPart::Unchosen => self.add_form_bytes(bytes.len()),
        }
    }

    fn end_part(&mut self) -> Result<(), PageRefusal> {
        if let FormPart::Field(name, value) = std::mem::replace(&mut self.now, FormPart::None) {
            let came = value.len();
            let value = replace_invalid(value);
            self.add_form_bytes(value.len() - came.min(value.len()))?;
            self.form.fields.push((name.into(), value.into()));
        }
        Ok(())
    }
}

/// Replaces invalid UTF-8 with U+FFFD, as in URL-encoded forms.
fn replace_invalid(text: Vec<u8>) -> Vec<u8> {
    String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()).into_bytes()
}

/// Returns the last component of a Unix or Windows path, without control characters.
fn bare_name(name: &[u8]) -> Vec<u8> {
    let start = name.iter().rposition(|byte| matches!(byte, b'/' | b'\\')).map_or(0, |at| at + 1);
    name[start..].iter().copied().filter(|byte| *byte >= 0x20 && *byte != 0x7f).collect()
}

#[cfg(test)]
mod tests {
    use super::{BodyLimits, Collector, PARTS_MAX, bare_name, check_urlencoded};
    use crate::api::budget::ContentBudget;
    use crate::api::multipart::{MultipartDecoder, MultipartStop};
    use crate::api::refusal::PageRefusal;
    use std::sync::Arc;

    fn collect(content: &[u8], limits: BodyLimits) -> Result<super::Form, PageRefusal> {
        let folder = std::env::temp_dir();
        let mut share = Arc::new(ContentBudget::default()).share(None);
        let mut collector = Collector::new(limits, &folder, &mut share);
        match MultipartDecoder::new(b"b").feed(content, &mut collector) {
            Ok((_, true)) => Ok(collector.form),
            Ok(_) | Err(MultipartStop::Malformed(_)) => Err(PageRefusal::FormMalformed),
            Err(MultipartStop::Refused(refusal)) => Err(refusal),
        }
    }

    fn part(name: &str, file: Option<&str>, content: &str) -> String {
        let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n")
    }

    #[test]
    fn fields_and_files() {
        let content = [
            part("a", None, "1"),
            part("f", Some("../../etc/passwd"), "root"),
            part("a", None, "2"),
            part("g", Some(""), ""),
            "--b--".to_owned(),
        ]
        .concat();
        let form = collect(content.as_bytes(), BodyLimits::default()).unwrap();
        let pairs: Vec<_> = form.fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(pairs, [(&b"a"[..], &b"1"[..]), (b"a", b"2")]);
        assert_eq!(form.files.len(), 1);
        assert_eq!((&form.files[0].field[..], &form.files[0].name[..]), (&b"f"[..], &b"passwd"[..]));
        assert_eq!(form.files[0].spool.read(0, 100).unwrap(), b"root");
    }

    #[test]
    fn bounds() {
        let limits = BodyLimits { form_bytes_max: 10, upload_bytes_max: 20 };
        let end = "--b--";
        for (content, expected) in [
            (part("a", None, "123456789"), None),
            (part("a", None, "1234567890"), Some(PageRefusal::FormTooLarge)),
            (part("abcdefghijk", None, ""), Some(PageRefusal::FormTooLarge)),
            (part("a", Some(""), "1234567890"), Some(PageRefusal::FormTooLarge)),
            (part("f", Some("x"), "12345678901234567890"), None),
            (part("f", Some("x"), "123456789012345678901"), Some(PageRefusal::UploadTooLarge)),
        ] {
            assert_eq!(collect((content.clone() + end).as_bytes(), limits).err(), expected, "{content}");
        }
        let many = part("", None, "").repeat(PARTS_MAX + 1) + end;
        assert_eq!(collect(many.as_bytes(), limits).err(), Some(PageRefusal::FormTooManyFields));
        assert_eq!(check_urlencoded("a&".repeat(2000).as_bytes()), Err(PageRefusal::FormTooManyFields));
    }

    #[test]
    fn names_have_no_folders() {
        for (name, expected) in [("C:\\a\\b.txt", "b.txt"), ("a/b/c", "c"), ("..", ".."), ("a\r\nb\0", "ab"), ("/", "")]
        {
            assert_eq!(bare_name(name.as_bytes()), expected.as_bytes());
        }
    }
}
