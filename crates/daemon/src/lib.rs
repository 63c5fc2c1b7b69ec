//! The life of the process: start, reload, upgrade, drain, and what operators ask it.
