//! An empty library: the package exists for its tests.
