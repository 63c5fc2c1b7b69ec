//! The parts of a request that determine the response, borrowed from the request or owned by a pending response.

use flatout_http::head::{Fields, Header};
use flatout_http::request::{Asked, Method, RequestHead};

/// The parts of a request that determine the response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRequest<'a> {
    /// True for GET, false for HEAD.
    pub(crate) is_get: bool,
    pub(crate) asked: Asked,
    pub(crate) fields: Fields<'a>,
}

impl<'a> From<&RequestHead<'a>> for FileRequest<'a> {
    fn from(head: &RequestHead<'a>) -> Self {
        Self { is_get: head.method == Method::Get, asked: head.asked, fields: head.fields }
    }
}

impl FileRequest<'_> {
    /// Returns whether the request has a Range field that applies. RFC 9110 §14.2 defines Range for GET only.
    pub(crate) const fn requests_range(&self) -> bool {
        self.is_get && self.asked.any(Asked::RANGE)
    }
}

/// An owned copy of a [`FileRequest`], for a response that is built later.
#[derive(Debug)]
pub(crate) struct KeptQuestion {
    is_get: bool,
    asked: Asked,
    lines: Vec<(String, Vec<u8>)>,
}

impl KeptQuestion {
    pub(crate) fn new(question: &FileRequest<'_>) -> Self {
        let mut lines = Vec::new();
        if question.asked.any(Asked::CONDITION | Asked::RANGE | Asked::DIGEST | Asked::ENCODING) {
            lines.extend(question.fields.iter().map(|(name, value)| (name.to_owned(), value.to_vec())));
        }
        Self { is_get: question.is_get, asked: question.asked, lines }
    }

    /// Calls `answer` with a [`FileRequest`] that borrows from this copy.
    pub(crate) fn ask<T>(&self, answer: impl FnOnce(&FileRequest<'_>) -> T) -> T {
        let lines: Vec<Header<'_>> = self.lines.iter().map(|(name, value)| Header { name, value }).collect();
        answer(&FileRequest { is_get: self.is_get, asked: self.asked, fields: Fields::from_lines(&lines) })
    }
}
