//! An exchange from beginning to end, and when it is tried again.

use super::address::OriginAddress;
use super::counts::OriginCounts;
use super::failure::ExchangeFailure;
use super::request::OutgoingRequest;
use super::response::Incoming;
use super::settings::OriginSettings;
use super::tls::OriginTls;
use std::sync::Arc;

/// A worker's connections to origins. Clones share them.
#[derive(Clone, Debug)]
pub struct OriginClient {}

impl OriginClient {
    /// A client without connections. Where it is made does not matter; it is used within one worker's runtime. `tls`
    /// is needed for origins of https.
    pub fn new(settings: OriginSettings, tls: Option<Arc<OriginTls>>, counts: Arc<OriginCounts>) -> Self {
        unimplemented!("{settings:?} {tls:?} {counts:?}")
    }

    /// Sends `request` to `origin` and returns when the head of its final answer is here. `interims` is told of every
    /// interim answer but 100 and 101: its status and its field lines.
    ///
    /// A request that met a connection which the origin had just closed is sent again at once, on a fresh one, when it
    /// may be. Any other failure is the caller's to decide on: the request can be sent again, to this origin or
    /// another, as far as [`ExchangeFailure::repeat`] and its content allow.
    ///
    /// Dropping the future closes the connection.
    pub async fn exchange(
        &self,
        origin: &OriginAddress,
        request: &mut OutgoingRequest<'_>,
        interims: impl FnMut(u16, &[u8]),
    ) -> Result<Incoming, ExchangeFailure> {
        let _ = (origin, request, interims);
        unimplemented!()
    }

    /// Connections to `origin` that are kept without use now.
    pub fn idle_connections(&self, origin: &OriginAddress) -> usize {
        unimplemented!("{origin}")
    }

    /// Closes what is kept without use.
    pub fn close_idle(&self) {
        unimplemented!()
    }
}
