//! Sockets between processes of one user, which carry descriptors.

#![expect(unsafe_code, reason = "asks the system who is at the other end of a socket")]

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use interop_core::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};

use crate::device_block::MAX_PIECES;
use crate::errors::{gone, malformed, system};

/// The longest name of a Unix socket.
pub(crate) const MAX_ADDRESS: usize = 107;
/// The start of the abstract names of offices.
const PREFIX: &str = "interop-ipc-";
/// The descriptors of one message: the page, and the pieces of a block. The system allows 253.
const MAX_DESCRIPTORS: usize = 1 + MAX_PIECES;

/// Where an office listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Address {
    /// A name that no file has, in the network namespace of the process.
    Abstract(Vec<u8>),
    /// A socket in the file system, which containers can share.
    Path(Vec<u8>),
}

impl Address {
    /// An abstract name that nobody can guess.
    pub(crate) fn random() -> Result<Self> {
        let name = random()?.iter().fold(PREFIX.to_owned(), |name, byte| name + &format!("{byte:02x}"));
        Ok(Self::Abstract(name.into_bytes()))
    }

    /// Checks the address of a message.
    pub(crate) fn check(&self) -> Result<()> {
        let (bytes, is_office) = match self {
            // A message must not make this process connect to a service of another kind.
            Self::Abstract(bytes) => (bytes, bytes.starts_with(PREFIX.as_bytes())),
            Self::Path(bytes) => (bytes, bytes.starts_with(b"/") && !bytes.contains(&0)),
        };
        if is_office && bytes.len() <= MAX_ADDRESS {
            return Ok(());
        }
        let found = format!("address {:?}", bytes.escape_ascii().to_string());
        Err(malformed("office", found, "that of an office"))
    }

    fn to_socket_address(&self) -> Result<SocketAddrUnix> {
        let made = match self {
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name),
            Self::Path(path) => SocketAddrUnix::new(path.as_slice()),
        };
        made.map_err(system("office"))
    }

    /// Listens at the address.
    pub(crate) fn listen(&self) -> Result<OwnedFd> {
        let socket = new_socket()?;
        rustix::net::bind(&socket, &self.to_socket_address()?).map_err(system("bind"))?;
        rustix::net::listen(&socket, 128).map_err(system("listen"))?;
        Ok(socket)
    }

    /// Connects to the office there.
    ///
    /// # Errors
    ///
    /// `Gone` if nobody listens, or the process does not accept connections.
    pub(crate) fn connect(&self) -> Result<Peer> {
        let socket = new_socket()?;
        let connected = rustix::net::connect(&socket, &self.to_socket_address()?);
        connected.map_err(|errno| match errno {
            Errno::AGAIN => gone("the producer's process accepts no connections"),
            Errno::CONNREFUSED | Errno::NOENT => self.nobody(),
            errno => system("connect")(errno),
        })?;
        Peer::of(socket)
    }

    /// The error for an address at which nobody listens. From here, the causes look the same.
    fn nobody(&self) -> Error {
        match self {
            Self::Abstract(_) => gone(
                "the producer's process has ended, or one of the two processes has a network namespace of its own, as in a container: \
                 then the producer calls `interop_ipc::listen_at` (in Python `interop_ipc.listen_at`) with a path that both can open",
            ),
            Self::Path(path) => gone(format_args!(
                "nobody listens at `{}`: the producer's process has ended, or this container does not mount the folder at this path",
                path.escape_ascii()
            )),
        }
    }
}

/// 16 bytes that nobody can guess.
pub(crate) fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let count = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    let is_whole = count.map_err(system("getrandom"))? == bytes.len();
    if is_whole { Ok(bytes) } else { Err(system("getrandom")(Errno::IO)) }
}

/// A socket for whole messages, which never blocks.
fn new_socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(system("socket"))
}

/// Accepts a connection.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Returns who is at the other end of a connection. The number of the process is 0 if it is in a container that hides it, which
/// `rustix` cannot express.
fn credentials(socket: &OwnedFd) -> Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or_default();
    let target = (&raw mut peer).cast();
    // SAFETY: the socket is open; both pointers are valid for writes, and the system writes at most `bytes` bytes to the first.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, target, &raw mut bytes)
    };
    let failed =
        || std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    if status == 0 { Ok(peer) } else { Err(system("SO_PEERCRED")(failed())) }
}

/// A connection to another process of the same user.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) socket: OwnedFd,
    /// Tells the end of the process, also if a child of it holds the socket. `None` if the process is in a container that hides its number.
    pub(crate) process: Option<OwnedFd>,
    /// The process, as this one sees it; 0 if it is hidden.
    pub(crate) number: i32,
}

impl Peer {
    /// Checks who is at the other end.
    ///
    /// # Errors
    ///
    /// `Gone` if the process has ended, `Unsupported` if it is that of another user.
    pub(crate) fn of(socket: OwnedFd) -> Result<Self> {
        let peer = credentials(&socket)?;
        let own = rustix::process::geteuid().as_raw();
        if peer.uid != own {
            let allowed = format!("{own}, the user of this process");
            return Err(Error::new(ErrorKind::Unsupported, "user", peer.uid, allowed));
        }
        let number = Pid::from_raw(peer.pid);
        let process = number.map(|number| match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Err(Errno::SRCH) => Err(gone("the other process has ended")),
            process => process.map_err(system("pidfd_open")),
        });
        Ok(Self { socket, process: process.transpose()?, number: peer.pid })
    }

    /// What can be read at the end of the process, or of the connection, if its number is hidden.
    pub(crate) fn end(&self) -> PollFd<'_> {
        match &self.process {
            Some(process) => PollFd::new(process, PollFlags::IN),
            None => PollFd::new(&self.socket, PollFlags::RDHUP),
        }
    }

    /// Whether the process has ended, or the connection.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Whether the process has ended, as far as this one can see it.
    pub(crate) fn process_has_ended(&self) -> bool {
        let mut polled = self.process.as_ref().map(|process| PollFd::new(process, PollFlags::IN));
        matches!(poll(polled.as_mut_slice(), Some(&Timespec::default())), Ok(1..))
    }

    /// As [`has_ended`](Self::has_ended), after a time at most.
    pub(crate) fn ends_within(&self, time: Duration) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP), self.end()];
        matches!(poll(&mut polled, Timespec::try_from(time).ok().as_ref()), Ok(1..))
    }

    /// Waits until a message can be received, or sent.
    ///
    /// # Errors
    ///
    /// `Gone` if the process ends first, or does not answer in time.
    pub(crate) fn wait(&self, flags: PollFlags, time: Duration) -> Result<()> {
        let mut polled = [PollFd::new(&self.socket, flags), self.end()];
        let timeout = Timespec::try_from(time).ok();
        loop {
            match poll(&mut polled, timeout.as_ref()) {
                Ok(0) => {
                    return Err(gone(format_args!("the producer's process has not answered for {time:?}")));
                }
                // What it has sent before its end can still be received.
                Ok(_) if !polled[0].revents().is_empty() => return Ok(()),
                Ok(_) => return Err(gone("the producer's process has ended")),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(system("poll")(errno)),
            }
        }
    }

    /// Sends a message, with descriptors. It fails rather than wait for a process that does not receive.
    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::INVAL);
        }
        let parts = [IoSlice::new(bytes)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(self.socket.as_fd(), &parts, &mut control, flags).map(drop)
    }

    /// Receives a message that has arrived. Returns its length, 0 at the end of the connection, and the descriptors.
    pub(crate) fn receive(&self, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received =
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        Ok((received.bytes, descriptors))
    }
}
