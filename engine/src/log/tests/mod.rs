//! Claims about whole logs.
