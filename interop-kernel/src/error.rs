//! What is wrong with the arguments of a launch.

use std::fmt;

/// Arguments that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError {
    kind: MistakeKind,
    location: &'static str,
    found: String,
    allowed: String,
}

/// The kinds of [`ArgumentError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MistakeKind {
    /// Arrays have other shapes than the kernel compares.
    Shape,
    /// More axes than the kernel is compiled for.
    Rank,
    /// More elements than can be counted.
    Overflow,
    /// Strides that do not fit the shape.
    Strides,
}

impl ArgumentError {
    pub(crate) fn new(
        kind: MistakeKind,
        location: &'static str,
        found: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self { kind, location, found: found.to_string(), allowed: allowed.to_string() }
    }

    /// The kind of mistake.
    #[must_use]
    pub fn kind(&self) -> MistakeKind {
        self.kind
    }

    /// The argument, or the property of the array, that is wrong.
    #[must_use]
    pub fn location(&self) -> &'static str {
        self.location
    }

    /// What was found there.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.found
    }

    /// What is allowed there.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.allowed
    }
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: found {}, allowed: {}", self.location, self.found, self.allowed)
    }
}

impl std::error::Error for ArgumentError {}
