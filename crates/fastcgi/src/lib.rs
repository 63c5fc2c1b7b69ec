//! FastCGI 1.0 as a client: records and variables as values, and the handler in front of PHP-FPM.
//!
//! | file | what it knows |
//! |---|---|
//! | [`record`], [`params`] | FastCGI's framing, both ways |
//! | [`variables`] | what a script is told of its request (RFC 3875 §4) |
//! | [`head`] | what a script says of its answer (RFC 3875 §6) |
//! | [`split`] | which script a path means, if any |
//! | [`lines`] | what scripts have to say to whoever runs them, line by line |
//! | [`outcome`] | why each answer was what it was |
//!
//! Absent by design: sockets (`flatout_net::fastcgi` has them).

pub mod head;
pub mod lines;
pub mod outcome;
pub mod params;
pub mod record;
pub mod split;
pub mod variables;
