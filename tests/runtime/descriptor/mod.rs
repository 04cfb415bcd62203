//! Validation of descriptions: what is accepted, what is refused, and the error messages.

mod accepted;
mod oracle;
mod refusals;
mod subbyte;
