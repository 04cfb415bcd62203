//! Claims: what the record of accesses says of a use of an array, which each door asks for.

use crate::array::elements::Elements;
use crate::array::mutability::Mutability;
use crate::driver::stream::Stream;
use crate::driver::stream::StreamId;
use crate::error::Result;
use crate::order::array_info::ArrayInfo;
use crate::order::record::access::Access;
use crate::order::record::{OpenAccess, ask};

/// The answer of the record of accesses: nobody uses the memory now in a way that excludes this use.
///
/// Whoever waits for the work on an array needs one ([`ArrayWork::order_before`](crate::order::handover::ArrayWork::order_before)),
/// because work that others have not queued yet cannot be waited for.
#[derive(Debug)]
#[must_use]
pub(crate) struct Claim {
    /// `None` for memory that nothing else can reach, and if the record was only asked.
    access: Option<OpenAccess>,
}

impl Claim {
    /// A use by the host, until the claim is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBorrowed`](crate::ErrorKind::AlreadyBorrowed), as of all constructors.
    #[inline]
    pub(crate) fn by_host(shared: Option<Elements>, writes: bool) -> Result<Self> {
        Self::record(shared.map(|elements| Access::by_host(elements, writes)))
    }

    /// A use by work on a stream, until the claim is dropped. `None`: a stream that is not known yet.
    pub(crate) fn by_device(shared: Option<Elements>, writes: bool, on: Option<Stream>) -> Result<Self> {
        let on = on.map_or(StreamId::NONE, Stream::id);
        Self::record(shared.map(|elements| Access::by_device(elements, writes, on)))
    }

    /// A use whose end nobody tells, such as that of an export, by a consumer on this stream. `None`: the host, or any stream.
    #[inline]
    pub(crate) fn asked(info: &ArrayInfo, on: Option<Stream>) -> Result<&'static Self> {
        static UNRECORDED: Claim = Claim { access: None };
        let on = || on.map_or(StreamId::NONE, Stream::id);
        let access = || shared_elements(info).map(|elements| Access::by_device(elements, false, on()));
        ask(access).map(|()| &UNRECORDED)
    }

    #[inline]
    fn record(access: Option<Access>) -> Result<Self> {
        Ok(Self { access: access.as_ref().map(OpenAccess::new).transpose()? })
    }

    /// The access in the record, for a use that lasts longer.
    pub(crate) fn into_access(self) -> Option<OpenAccess> {
        self.access
    }
}

/// The elements of an array if two structs may share them. Memory that only a sole owner may write is borrowed like any
/// Rust value, so the compiler checks it.
#[inline]
pub(crate) fn shared_elements(info: &ArrayInfo) -> Option<Elements> {
    is_shared(info).then(|| info.elements())
}

/// As [`shared_elements`], without the elements.
#[inline]
pub(crate) fn is_shared(info: &ArrayInfo) -> bool {
    info.mutability() != Mutability::UniqueOwner && !info.unwatched_range().is_empty()
}
