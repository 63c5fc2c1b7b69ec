//! stub
use crate::root::Root;
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish;
impl Wish {
    pub(crate) fn parse<'a>(_q: Option<&[u8]>, _a: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self
    }
    pub(crate) fn key(&self) -> [u8; 2] {
        [0, 0]
    }
}
pub(crate) fn make(
    _root: &Root,
    _name: &[u8],
    _shown: &[u8],
    _hidden: bool,
    _max: u32,
    _wish: Wish,
) -> Option<Vec<u8>> {
    None
}
pub(crate) fn content_type(_wish: &Wish) -> &'static str {
    "text/html; charset=utf-8"
}
