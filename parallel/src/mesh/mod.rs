//! Named axes over ranks.
