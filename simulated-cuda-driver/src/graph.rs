//! Graphs: captured work that can be queued repeatedly.

use crate::happens_before::{Before, Step, Who};
use crate::queue::{Operation, Work};
use crate::state::{Handle, State};
use crate::status::{Answer, Status};

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

impl State {
    /// Queues the work of a graph on a stream.
    pub(crate) fn launch_graph(&mut self, graph: Handle, stream: Handle) -> Answer {
        let nodes = self.graphs.get(&graph).ok_or(Status::INVALID_VALUE)?.nodes.clone();
        self.check_not_capturing(stream)?;
        let context = self.streams[&stream].context;
        let first = self.before_next(stream);
        let mut queued: Vec<Step> = Vec::with_capacity(nodes.len());
        for Node { work, after: edges, name } in nodes {
            // Nodes without a dependency between them may run in any order, as if each had its own stream.
            let agent = self.agents.add(Who::Node(stream));
            let (mut after, mut clock) = (first.operations.clone(), first.clock.clone());
            for before in edges.iter().map(|index| &queued[*index]) {
                after.push(before.moment.number);
                clock.join(&before.clock);
            }
            let step = self.step_after(agent, name, clock);
            queued.push(step.clone());
            self.queue.push(Operation { work, context, after, step });
        }
        let mut all = Before::default();
        for step in &queued {
            all.operations.push(step.moment.number);
            all.clock.join(&step.clock);
        }
        self.enqueue(stream, Work::Nothing, &all);
        Ok(())
    }
}
