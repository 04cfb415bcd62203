//! Graphs: captured work that can be queued again.

use crate::queue::{OpId, Operation, Work};
use crate::state::{Handle, State};
use crate::status::{Answer, Status};

/// One piece of captured work.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) work: Work,
    /// The nodes it must come after, all before it in the graph.
    pub(crate) after: Vec<usize>,
}

/// A graph, or one that was made ready for launches.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

impl State {
    /// Queues the work of a graph on a stream.
    pub(crate) fn launch_graph(&mut self, graph: Handle, stream: Handle) -> Answer {
        let nodes = self.graphs.get(&graph).ok_or(Status::INVALID_VALUE)?.nodes.clone();
        self.check_not_capturing(stream)?;
        let context = self.streams[&stream].context;
        let first = self.before_next(stream);
        let mut queued: Vec<OpId> = Vec::with_capacity(nodes.len());
        for Node { work, after } in nodes {
            let mut before: Vec<_> = after.iter().map(|index| queued[*index]).collect();
            before.extend(&first);
            queued.push(self.queue.push(Operation {
                work,
                stream,
                context,
                after: before,
                accesses: Vec::new(),
            }));
        }
        self.enqueue(stream, Work::Nothing, &queued);
        Ok(())
    }
}
