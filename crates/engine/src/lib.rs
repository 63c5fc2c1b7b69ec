//! Sites and routes: one request finds its handler here.
