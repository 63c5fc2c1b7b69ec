//! Fields that speak to some caches alone, in place of Cache-Control and Expires (RFC 9213).
