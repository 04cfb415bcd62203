//! Graphs: captured work that can be queued repeatedly.

use crate::queue::Work;

/// One captured operation.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) work: Work,
    /// The nodes that it must come after. All of them precede it in the list.
    pub(crate) after: Vec<usize>,
    /// The driver function that was captured.
    pub(crate) name: &'static str,
}

/// A graph or an executable graph.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

/// The nodes that the next work must come after, by index in the graph.
pub(crate) type Frontier = Vec<usize>;
