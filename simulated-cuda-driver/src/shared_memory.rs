//! Memory files that several processes map, each with a record of what the others must know to find unordered uses.
//!
//! A record starts with a clock, in a form that every process can read. The record of an allocation also has one section
//! for each process that uses it, with the latest uses. Records consist of atomic words, and are used under a lock that the
//! system releases if its holder dies.

#![expect(unsafe_code, reason = "the system's calls, and memory of several processes")]

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::{Use, What};
use crate::address_space::Window;
use crate::handle::OpId;
use crate::happens_before::Agent;
use crate::status::{Answer, Status};

const PAGE: usize = 4096;
/// How many actions a clock in a record can hold. Later ones are left out, which can only add reports.
const CLOCK_ROWS: usize = 256;
/// Words of a row of a clock: process, agent, number.
const ROW: usize = 3;
/// How many processes can share an allocation, and how many uses each of them can tell.
const SECTIONS: usize = 8;
const USES: usize = 48;
/// Words of a use: what, agent, number, offset, bytes, and the name of the function.
const USE: usize = 5 + NAME;
const NAME: usize = 4;
/// Words of a section: process, how often it has opened the memory, the number of uses, the uses.
const SECTION: usize = 3 + USE * USES;
/// The bytes of a clock: the number of rows, and the rows.
pub(crate) const CLOCK_BYTES: usize = (8 * (1 + ROW * CLOCK_ROWS)).next_multiple_of(PAGE);
/// How many clocks a number has: those of its last writes.
const CLOCKS: usize = 4;
/// Words behind the rows of the clock of a record that say what a file is: a mark of its kind, the device, and for a pool its process
/// and its handle there. For a clock of a number, one more than the number, or 0.
const LABEL: usize = CLOCK_BYTES / 8 - 4;
const _: () = assert!(ROW * CLOCK_ROWS < LABEL);
/// The name of the files, without which a descriptor is not of this driver.
const NAME_OF_FILES: &CStr = c"simulated-cuda";
/// The bytes of the record of an allocation.
const RECORD_BYTES: usize = CLOCK_BYTES + (8 * SECTION * SECTIONS).next_multiple_of(PAGE);

/// The last known action of an agent of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ForeignMoment {
    pub(crate) process: u32,
    pub(crate) agent: Agent,
    pub(crate) number: OpId,
}

/// A use of shared memory by another process.
#[derive(Debug)]
pub(crate) struct ForeignUse {
    pub(crate) moment: ForeignMoment,
    pub(crate) what: What,
    /// From the start of the allocation.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The driver function, shortened.
    pub(crate) name: String,
}

/// What a file stands for whose descriptor other processes get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// Memory of `cuMemCreate` on a device.
    Memory { device: usize },
    /// A pool on a device, by its process and its handle there.
    Pool { device: usize, origin: (u32, u64) },
}

const MEMORY_MARK: u64 = 0x6d65_6d6f;
const POOL_MARK: u64 = 0x706f_6f6c;

/// A mapped part of a file: `data` bytes, and the record behind them.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    at: *mut u8,
    length: usize,
    /// The offset of the record.
    record: usize,
    file: Arc<OwnedFd>,
    /// The process and descriptor by which other processes find the file.
    pub(crate) origin: (u32, u32),
}

// SAFETY: the record consists of atomics, and the data is device memory, which the scheduler uses under its lock.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates an allocation of zeroed bytes with an empty record.
    pub(crate) fn new(bytes: u64) -> Answer<Arc<Self>> {
        let file = Arc::new(anonymous_file()?);
        let fd = u32::try_from(file.as_raw_fd()).map_err(|_| Status::OUT_OF_MEMORY)?;
        let data = data_bytes(bytes)?;
        grow(&file, data + RECORD_BYTES)?;
        Self::map(file, (std::process::id(), fd), 0, data, RECORD_BYTES)
    }

    /// Opens the allocation of another process.
    pub(crate) fn open(origin: (u32, u32), bytes: u64) -> Answer<Arc<Self>> {
        let (process, fd) = origin;
        let path = format!("/proc/{process}/fd/{fd}");
        let file = File::options().read(true).write(true).open(path).map_err(|_| Status::INVALID_VALUE)?;
        let data = data_bytes(bytes)?;
        let found = file.metadata().map_err(|_| Status::INVALID_VALUE)?.len();
        if found != (data + RECORD_BYTES) as u64 {
            return Err(Status::INVALID_VALUE);
        }
        Self::map(Arc::new(file.into()), origin, 0, data, RECORD_BYTES)
    }

    /// Creates a file whose descriptor other processes get.
    pub(crate) fn labelled(bytes: u64, label: Label) -> Answer<Arc<Self>> {
        let shared = Self::new(bytes)?;
        let words = match label {
            Label::Memory { device } => [MEMORY_MARK, device as u64, 0, 0],
            Label::Pool { device, origin } => [POOL_MARK, device as u64, origin.0.into(), origin.1],
        };
        for (index, word) in words.into_iter().enumerate() {
            shared.set(LABEL + index, word);
        }
        Ok(shared)
    }

    /// A new descriptor of the file, for another process.
    pub(crate) fn descriptor(&self) -> Answer<OwnedFd> {
        self.file.try_clone().map_err(|_| Status::OUT_OF_MEMORY)
    }

    /// Opens a file by a descriptor of this process, which stays open. Returns its bytes and what it stands for.
    ///
    /// The opening is a new one, because locks belong to openings.
    pub(crate) fn of_descriptor(descriptor: u64) -> Answer<(Arc<Self>, u64, Label)> {
        let path = format!("/proc/self/fd/{descriptor}");
        let name = std::fs::read_link(&path).map_err(|_| Status::UNKNOWN)?;
        let ours = format!("/memfd:{}", NAME_OF_FILES.to_string_lossy());
        if !name.to_string_lossy().starts_with(&ours) {
            return Err(Status::UNKNOWN);
        }
        let file = File::options().read(true).write(true).open(path).map_err(|_| Status::UNKNOWN)?;
        let length = file.metadata().map_err(|_| Status::UNKNOWN)?.len();
        let data = usize::try_from(length).ok().and_then(|length| length.checked_sub(RECORD_BYTES));
        let data = data.ok_or(Status::UNKNOWN)?;
        let shared = Self::map(Arc::new(file.into()), (0, 0), 0, data, RECORD_BYTES)?;
        let label = shared.label().ok_or(Status::UNKNOWN)?;
        Ok((shared, data as u64, label))
    }

    fn label(&self) -> Option<Label> {
        let device = usize::try_from(self.get(LABEL + 1)).ok()?;
        let process = u32::try_from(self.get(LABEL + 2)).ok()?;
        match self.get(LABEL) {
            MEMORY_MARK => Some(Label::Memory { device }),
            POOL_MARK => Some(Label::Pool { device, origin: (process, self.get(LABEL + 3)) }),
            _ => None,
        }
    }

    /// Maps the data over a part of a window.
    pub(crate) fn show_in(&self, window: &Window, offset: u64) -> Answer {
        window.show(offset, self.record as u64, &*self.file)
    }

    /// Maps the clocks of the number with this index in a file of clocks.
    pub(crate) fn clock(file: &Arc<OwnedFd>, index: usize) -> Answer<Arc<Self>> {
        const BYTES: usize = CLOCKS * CLOCK_BYTES;
        let offset = index.checked_mul(BYTES).ok_or(Status::INVALID_VALUE)?;
        grow(file, offset + BYTES)?;
        Self::map(file.clone(), (0, 0), offset, 0, BYTES)
    }

    fn map(
        file: Arc<OwnedFd>,
        origin: (u32, u32),
        offset: usize,
        record: usize,
        behind: usize,
    ) -> Answer<Arc<Self>> {
        let length = record + behind;
        let start = i64::try_from(offset).map_err(|_| Status::INVALID_VALUE)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that has these bytes.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), start)
        };
        if at == libc::MAP_FAILED {
            return Err(Status::OUT_OF_MEMORY);
        }
        Ok(Arc::new(Self { at: at.cast(), length, record, file, origin }))
    }

    /// The first byte of the data.
    pub(crate) fn data(&self) -> *mut u8 {
        self.at
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(self.record + 8 * (index + 1) <= self.length, "a word beyond the record");
        #[expect(clippy::cast_ptr_alignment, reason = "mappings and records start at pages")]
        let at = self.at.wrapping_add(self.record).cast::<AtomicU64>().wrapping_add(index).cast_const();
        // SAFETY: within the mapping, which lasts as long as `self`; aligned, as above;
        // all processes use these words as atomics only.
        unsafe { &*at }
    }

    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    fn set(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Relaxed);
    }

    /// Runs `body` while no other process uses a record of the file.
    fn locked<R>(&self, body: impl FnOnce() -> R) -> R {
        set_lock(&self.file, libc::F_WRLCK);
        let result = body();
        set_lock(&self.file, libc::F_UNLCK);
        result
    }

    /// Replaces the clock.
    pub(crate) fn store_clock(&self, clock: &[ForeignMoment]) {
        self.locked(|| self.write_clock(0, clock));
    }

    /// Returns the clock that was stored last.
    pub(crate) fn load_clock(&self) -> Vec<ForeignMoment> {
        self.locked(|| self.read_clock(0))
    }

    /// Stores the clock of a write of a number, in the place of that of the smallest one.
    pub(crate) fn store_number(&self, number: u64, clock: &[ForeignMoment]) {
        let mark = number.wrapping_add(1);
        self.locked(|| {
            let same = Self::clocks().find(|at| self.get(at + LABEL) == mark);
            let at =
                same.or_else(|| Self::clocks().min_by_key(|at| self.get(at + LABEL))).unwrap_or_default();
            self.set(at + LABEL, mark);
            self.write_clock(at, clock);
        });
    }

    /// Returns the clock of the smallest number that a wait accepts: greater ones have come by luck. Of none, the greatest.
    pub(crate) fn load_number(&self, accepts: impl Fn(u64) -> bool) -> Vec<ForeignMoment> {
        self.locked(|| {
            let marks = Self::clocks().map(|at| (self.get(at + LABEL), at));
            let first = marks.clone().filter(|(mark, _)| *mark > 0 && accepts(mark - 1)).min();
            let (_, at) = first.or_else(|| marks.max()).unwrap_or_default();
            self.read_clock(at)
        })
    }

    /// The first words of the clocks of a number.
    fn clocks() -> impl Iterator<Item = usize> + Clone {
        (0..CLOCKS).map(|index| index * CLOCK_BYTES / 8)
    }

    fn write_clock(&self, at: usize, clock: &[ForeignMoment]) {
        let rows = &clock[..clock.len().min(CLOCK_ROWS)];
        self.set(at, rows.len() as u64);
        for (index, row) in rows.iter().enumerate() {
            let at = at + 1 + ROW * index;
            self.set(at, row.process.into());
            self.set(at + 1, row.agent.into());
            self.set(at + 2, row.number);
        }
    }

    fn read_clock(&self, at: usize) -> Vec<ForeignMoment> {
        let row = |at| ForeignMoment {
            process: self.get(at) as u32,
            agent: self.get(at + 1) as u32,
            number: self.get(at + 2),
        };
        let count = (self.get(at) as usize).min(CLOCK_ROWS);
        (0..count).map(|index| row(at + 1 + ROW * index)).collect()
    }

    /// The first words of the sections.
    fn sections() -> impl Iterator<Item = usize> {
        (0..SECTIONS).map(|index| CLOCK_BYTES / 8 + SECTION * index)
    }

    /// Returns the section of this process, which may be a free one or that of a process that has ended.
    fn own_section(&self) -> Option<usize> {
        let me = u64::from(std::process::id());
        if let Some(own) = Self::sections().find(|at| self.get(*at) == me) {
            return Some(own);
        }
        let free = Self::sections().find(|at| !is_running(self.get(*at)))?;
        for word in 0..3 {
            self.set(free + word, 0);
        }
        self.set(free, me);
        Some(free)
    }

    /// Stores the latest uses of this process, and returns those of the other processes that still run.
    pub(crate) fn exchange(&self, own: &[Use], first: u64) -> Vec<ForeignUse> {
        self.locked(|| {
            if let Some(section) = self.own_section() {
                let latest = &own[own.len().saturating_sub(USES)..];
                self.set(section + 2, latest.len() as u64);
                for (index, one) in latest.iter().enumerate() {
                    self.store_use(section + 3 + USE * index, one, first);
                }
            }
            let me = u64::from(std::process::id());
            let others = Self::sections().filter(|at| self.get(*at) != me && is_running(self.get(*at)));
            others.flat_map(|section| self.load_uses(section)).collect()
        })
    }

    fn store_use(&self, at: usize, one: &Use, first: u64) {
        let moment = one.step.moment;
        let numbers = [one.what as u64, moment.agent.into(), moment.number, one.address - first, one.bytes];
        for (index, number) in numbers.into_iter().enumerate() {
            self.set(at + index, number);
        }
        let mut name = one.step.name.bytes().take(8 * NAME);
        for index in 0..NAME {
            let word: [u8; 8] = std::array::from_fn(|_| name.next().unwrap_or(0));
            self.set(at + 5 + index, u64::from_le_bytes(word));
        }
    }

    fn load_uses(&self, section: usize) -> Vec<ForeignUse> {
        let process = self.get(section) as u32;
        let load = |at: usize| {
            let name: Vec<_> = (0..NAME).flat_map(|index| self.get(at + 5 + index).to_le_bytes()).collect();
            ForeignUse {
                moment: ForeignMoment { process, agent: self.get(at + 1) as u32, number: self.get(at + 2) },
                what: What::of(self.get(at)),
                offset: self.get(at + 3),
                bytes: self.get(at + 4),
                name: String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned(),
            }
        };
        let count = (self.get(section + 2) as usize).min(USES);
        (0..count).map(|index| load(section + 3 + USE * index)).collect()
    }

    /// Records that this process has opened the memory, or closed it.
    pub(crate) fn count_opening(&self, opened: bool) {
        self.locked(|| {
            let Some(section) = self.own_section() else { return };
            let count = self.get(section + 1);
            self.set(section + 1, if opened { count + 1 } else { count.saturating_sub(1) });
        });
    }

    /// Withdraws the uses of this process, unless it has the memory open: who hears of the close knows that this work is finished.
    pub(crate) fn withdraw_uses(&self) {
        self.locked(|| {
            if let Some(own) = self.own_section().filter(|section| self.get(section + 1) == 0) {
                self.set(own, 0);
            }
        });
    }

    /// How often processes that still run have the memory open.
    pub(crate) fn openings(&self) -> u64 {
        self.locked(|| {
            let running = Self::sections().filter(|at| is_running(self.get(*at)));
            running.map(|section| self.get(section + 1)).sum()
        })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

fn data_bytes(bytes: u64) -> Answer<usize> {
    let data = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
    data.filter(|data| *data < usize::MAX / 2).ok_or(Status::OUT_OF_MEMORY)
}

/// Creates a file in memory without a name.
pub(crate) fn anonymous_file() -> Answer<OwnedFd> {
    // SAFETY: the name ends with a zero.
    let fd = unsafe { libc::memfd_create(NAME_OF_FILES.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Status::OUT_OF_MEMORY);
    }
    // SAFETY: a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a file at least this long.
fn grow(file: &OwnedFd, length: usize) -> Answer {
    set_lock(file, libc::F_WRLCK);
    let file = File::from(file.try_clone().map_err(|_| Status::OUT_OF_MEMORY)?);
    let known = file.metadata().map_or(0, |metadata| metadata.len());
    let grown = if known < length as u64 { file.set_len(length as u64) } else { Ok(()) };
    set_lock(&file, libc::F_UNLCK);
    grown.map_err(|_| Status::OUT_OF_MEMORY)
}

/// Locks or unlocks a whole file. The system unlocks it when the last descriptor of this opening is closed, as by the end of
/// the process.
fn set_lock(file: &impl AsRawFd, kind: libc::c_int) {
    let kind = libc::c_short::try_from(kind).unwrap_or_default();
    let whole = libc::SEEK_SET as libc::c_short;
    let lock = libc::flock { l_type: kind, l_whence: whole, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: the system only reads the lock. A call that a signal has interrupted is repeated.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) } < 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

/// Whether a process runs, by its number. A process that has ended and is not waited for does not run.
fn is_running(process: u64) -> bool {
    if process == 0 {
        return false;
    }
    let Ok(text) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The name of the program is in parentheses, and may contain some.
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// The start of the names of files with the clocks of numbers.
const CLOCK_FILES: &str = "simulated-cuda-numbers-";
const CLOCK_FOLDER: &str = "/dev/shm";

/// Opens the file with the clocks of the numbers in a file that several processes map, by the name of that file. The
/// first user creates it.
///
/// Each user has it locked, for as long as it runs. Files without a user are removed when another one is created.
pub(crate) fn clocks_of_file(name: &str) -> Answer<OwnedFd> {
    let path = format!("{CLOCK_FOLDER}/{CLOCK_FILES}{name}");
    loop {
        let is_new = !std::fs::exists(&path).unwrap_or(false);
        if is_new {
            remove_unused_clocks();
        }
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(|_| Status::NOT_SUPPORTED)?;
        // SAFETY: a call without pointers. It fails for no reason that a repetition would not show.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) };
        // Another process may have removed the file before it was locked.
        if std::fs::exists(&path).unwrap_or(false) {
            return Ok(file.into());
        }
    }
}

/// Removes the files with clocks that no process has open.
pub(crate) fn remove_unused_clocks() {
    let Ok(folder) = std::fs::read_dir(CLOCK_FOLDER) else { return };
    let is_ours = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(CLOCK_FILES))
    };
    for path in folder.flatten().map(|entry| entry.path()).filter(is_ours) {
        let Ok(file) = File::open(&path) else { continue };
        // SAFETY: a call without pointers.
        let unused = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
        if unused {
            // Another process may have removed it.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Returns a name for the file behind an address that other processes can map, and the offset of the address in it.
pub(crate) fn file_behind(address: u64) -> Option<(String, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        // first-last permissions offset device inode path
        let mut fields = line.split_whitespace();
        let (first, last) = fields.next()?.split_once('-')?;
        let [first, last] = [first, last].map(|text| u64::from_str_radix(text, 16).ok());
        let first = first.filter(|first| *first <= address && last.is_some_and(|last| address < last))?;
        let is_shared = fields.next()?.ends_with('s');
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let (device, inode) = (fields.next()?, fields.next()?);
        is_shared.then(|| (format!("{device}-{inode}"), offset + (address - first)))
    })
}
