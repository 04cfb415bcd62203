//! Claims and facts: what is accepted, what is refused, and what the refusal says.

mod accepted;
mod oracle;
mod refusals;
mod subbyte;
