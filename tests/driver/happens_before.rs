//! A reference model of the order in a program: sets instead of clocks, slow and simple. The driver's vector clocks
//! are compared with it.

/// The index of the legacy default stream, on which memory is freed.
pub(crate) const LEGACY: usize = 2;

/// An operation of a program that creates an order or needs one. Operations are listed in program order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Work on a stream reads or writes an array.
    Use { stream: usize, array: usize, writes: bool },
    /// The stream `to` waits for `from`, by this call of `cuStreamWaitEvent`.
    Edge { from: usize, to: usize, call: u64 },
    /// The host synchronizes a stream.
    HostWait { stream: usize },
    /// An array is released after all queued work and freed on the legacy stream.
    Release { array: usize },
    /// A deferred release has triggered another, which waits for all work queued so far.
    ReleaseScope,
}

/// A set of operations, by their positions in a program.
type Set = u128;

/// Returns whether two uses of an array, or a use and its release, are unordered if the operation `without` has no
/// effect.
///
/// The model may report an order that does not exist: it assumes that a release has waited on the host for all work
/// before it. In fact the host knows that only if a poll found the work finished. So a reported error is real.
pub(crate) fn is_broken(acts: &[Act], without: Option<usize>) -> bool {
    assert!(acts.len() <= 128, "{} acts in a set of 128", acts.len());
    let (mut known, mut host): ([Set; 3], Set) = ([0; 3], 0);
    let uses_of = |wanted: usize, before: usize| {
        acts[..before].iter().enumerate().filter_map(move |(at, act)| match act {
            Act::Use { array, writes, .. } if *array == wanted => Some((at, *writes)),
            _ => None,
        })
    };
    for (at, act) in acts.iter().enumerate() {
        let counts = without != Some(at);
        match *act {
            Act::Use { stream, array, writes } => {
                known[stream] |= host;
                let unknown = |(other, writes_too): (usize, bool)| {
                    (writes || writes_too) && known[stream] & (1 << other) == 0
                };
                if uses_of(array, at).any(unknown) {
                    return true;
                }
                known[stream] |= 1 << at;
            }
            Act::Edge { from, to, .. } if counts => known[to] |= known[from] | host,
            Act::HostWait { stream } => host |= known[stream],
            Act::ReleaseScope => host = (1 << at) - 1,
            Act::Release { .. } if counts => host = (1 << at) - 1,
            Act::Release { array } => {
                let freed_after = known[LEGACY] | host;
                if uses_of(array, at).any(|(other, _)| freed_after & (1 << other) == 0) {
                    return true;
                }
            }
            Act::Edge { .. } => {}
        }
    }
    false
}

#[test]
fn sets_tell_what_is_ordered() {
    let used = |stream, writes| Act::Use { stream, array: 0, writes };
    let edge = |from, to| Act::Edge { from, to, call: 0 };
    let release = Act::Release { array: 0 };
    let cases: [(&[Act], Option<usize>, bool); 10] = [
        (&[used(0, true), used(1, false)], None, true),
        (&[used(0, true), edge(0, 1), used(1, false)], None, false),
        (&[used(0, true), edge(0, 1), used(1, false)], Some(1), true),
        (&[used(0, true), edge(1, 0), used(1, false)], None, true),
        (&[used(0, false), used(1, false)], None, false),
        (&[used(0, true), edge(0, 2), edge(2, 1), used(1, true)], None, false),
        (&[used(0, true), Act::HostWait { stream: 0 }, used(1, true)], None, false),
        (&[used(0, true), release], None, false),
        (&[used(0, true), release], Some(1), true),
        (&[used(LEGACY, true), release], Some(1), false),
    ];
    for (acts, without, broken) in cases {
        assert_eq!(is_broken(acts, without), broken, "{acts:?} without {without:?}");
    }
}
