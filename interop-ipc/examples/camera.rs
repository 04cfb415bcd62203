//! A camera that publishes frames to two readers, as a robot does: each in a process of its own, and no frame is copied.
//!
//! `cargo run -p interop-ipc --example camera`. The messages go through pipes here; a socket, zenoh or a queue carries them as well.
//! With `-- with python interop-ipc/python/examples/camera.py reader`, that program is the second reader.

use std::collections::VecDeque;
use std::io::{Read, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use interop_core::{CudaArray, ErrorKind, Lease, Result};
use interop_ipc::{FromParcel, Parcel, ShareParcel, SharedVec};

/// Both programs have this struct. The camera writes to memory that it can share, a reader reads what it has leased.
#[derive(CudaArray)]
#[cuda_array(shape = [height, width, 3])]
struct Frame<S> {
    #[cuda_array(data)]
    pixels: S,
    height: usize,
    width: usize,
}

/// A frame of the camera.
type Owned = Frame<SharedVec<u8>>;

type Error = Box<dyn std::error::Error + Send + Sync>;

const FRAMES: u32 = 200;
/// How many frames the readers may lag behind.
const BUFFERS: usize = 4;
/// How long a frame is offered. A reader that opens it later has lost it.
const OFFERED: Duration = Duration::from_secs(10);

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((word, [])) if word == "reader" => read(),
        Some((word, second)) if word == "with" => publish(second),
        // What `cargo test` passes on.
        _ => publish(&[]),
    }
}

/// The camera.
fn publish(second: &[String]) -> Result<(), Error> {
    let own = [std::env::current_exe()?.to_string_lossy().into_owned(), "reader".to_owned()];
    let second = if second.is_empty() { &own } else { second };
    let mut readers = [Reader::start(&own)?, Reader::start(second)?];
    let mut sent = VecDeque::new();
    for number in 0..FRAMES {
        let mut frame = free_frame(&mut sent)?;
        let pixels = Arc::get_mut(&mut frame).ok_or("the frame is still shared")?;
        pixels.map_inplace(|_: u8| brightness(number))?;
        let parcel = frame.share_parcel(2, OFFERED)?;
        for reader in &mut readers {
            reader.send(parcel.bytes())?;
        }
        sent.push_back(parcel);
    }
    for reader in readers {
        let [right, lost] = reader.finish()?;
        assert!(right + lost == FRAMES && right > 0, "a frame that is opened is as it was sent");
        println!("{right} frames read in place, {lost} lost by a reader that lagged behind");
    }
    Ok(())
}

/// Returns the oldest frame if nobody reads it any more, or else a new one: a camera waits for nobody.
fn free_frame(sent: &mut VecDeque<Parcel<Arc<Owned>>>) -> Result<Arc<Owned>> {
    let oldest = if sent.len() < BUFFERS { None } else { sent.pop_front() };
    // One that is still read is freed when its reader has finished or crashed.
    if let Some(frame) = oldest.and_then(|parcel| parcel.take_back(Duration::ZERO).ok()) {
        return Ok(frame);
    }
    Ok(Arc::new(Frame { pixels: SharedVec::zeroed(480 * 640 * 3)?, height: 480, width: 640 }))
}

/// What every pixel of a frame has.
fn brightness(number: u32) -> u8 {
    (number % 251) as u8
}

/// A reader: counts the frames that have the right pixels, and those that it has lost.
fn read() -> Result<(), Error> {
    let (mut number, mut right, mut lost) = (0, 0_u32, 0_u32);
    while let Some(message) = receive(&mut stdin().lock())? {
        number += 1;
        // Checked as every import: three channels of bytes.
        let frame = match Frame::<Lease<u8>>::from_parcel(&message) {
            Err(error) if error.kind() == ErrorKind::Gone => {
                // The camera has taken the frame back.
                lost += 1;
                continue;
            }
            frame => frame?,
        };
        let is_right = frame.fold(true, |so_far, pixel: u8| so_far && pixel == brightness(number - 1))?;
        right += u32::from(is_right && (frame.height, frame.width) == (480, 640));
        // The drop gives the frame back.
    }
    println!("{right} {lost}");
    Ok(())
}

/// Reads a message and its length. `None` at the end.
fn receive(from: &mut impl Read) -> Result<Option<Vec<u8>>, Error> {
    let mut length = [0; 4];
    if from.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[1..])?;
    let mut message = vec![0; u32::from_le_bytes(length).min(4096) as usize];
    from.read_exact(&mut message)?;
    Ok(Some(message))
}

/// A process that reads frames.
struct Reader {
    process: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Reader {
    fn start(command: &[String]) -> Result<Self, Error> {
        let (program, arguments) = command.split_first().ok_or("a program")?;
        let mut process =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (process.stdin.take().ok_or("a pipe")?, process.stdout.take().ok_or("a pipe")?);
        Ok(Self { process, input, output })
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.input.write_all(&u32::try_from(message.len())?.to_le_bytes())?;
        self.input.write_all(message)?;
        Ok(self.input.flush()?)
    }

    /// Ends the messages, and returns what the reader has counted.
    fn finish(mut self) -> Result<[u32; 2], Error> {
        drop(self.input);
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        self.process.wait()?;
        let (right, lost) = text.trim().split_once(' ').ok_or("two numbers")?;
        Ok([right.parse()?, lost.parse()?])
    }
}
