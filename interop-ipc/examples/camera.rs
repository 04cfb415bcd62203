//! A camera that publishes frames to two readers, as a robot does: each in a process of its own, and no frame is copied.
//!
//! `cargo run -p interop-ipc --example camera`. The messages go through pipes here; a socket, zenoh or a queue carries them as well.

use std::collections::VecDeque;
use std::io::{Read, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use interop_core::{CudaArray, Lease, Result};
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

type Error = Box<dyn std::error::Error + Send + Sync>;

const FRAMES: u32 = 200;
/// How many frames the readers may lag behind.
const BUFFERS: usize = 4;
/// A reader that has died, or is slower than this, loses frames.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> Result<(), Error> {
    if std::env::args().nth(1).as_deref() == Some("reader") { read() } else { publish() }
}

/// The camera.
fn publish() -> Result<(), Error> {
    let mut readers = [Reader::start()?, Reader::start()?];
    let mut sent = VecDeque::new();
    for number in 0..FRAMES {
        let mut frame = if sent.len() < BUFFERS {
            Arc::new(Frame { pixels: SharedVec::<u8>::zeroed(480 * 640 * 3)?, height: 480, width: 640 })
        } else {
            // The oldest one. It waits until nobody reads it any more; a reader that has crashed counts as done.
            let oldest: Parcel<Arc<Frame<_>>> = sent.pop_front().ok_or("a frame that was sent")?;
            oldest.take_back(PATIENCE).map_err(|refused| refused.error)?
        };
        let pixels = Arc::get_mut(&mut frame).ok_or("the frame is still shared")?;
        pixels.map_inplace(|_: u8| brightness(number))?;
        let parcel = frame.share_parcel(2, PATIENCE)?;
        drop(frame);
        for reader in &mut readers {
            reader.send(parcel.bytes())?;
        }
        sent.push_back(parcel);
    }
    for reader in readers {
        assert_eq!(reader.finish()?, u64::from(FRAMES), "each reader has seen each frame as it was");
    }
    println!("{FRAMES} frames of 900 KiB, read by two processes in place");
    Ok(())
}

/// What every pixel of a frame has.
fn brightness(number: u32) -> u8 {
    (number % 251) as u8
}

/// A reader: counts the frames that have the right pixels.
fn read() -> Result<(), Error> {
    let (mut number, mut right) = (0, 0_u64);
    while let Some(message) = receive(&mut stdin().lock())? {
        // Checked as every import: three channels of bytes.
        let frame: Frame<Lease<u8>> = Frame::from_parcel(&message)?;
        let is_right = frame.fold(true, |so_far, pixel: u8| so_far && pixel == brightness(number))?;
        right += u64::from(is_right && (frame.height, frame.width) == (480, 640));
        number += 1;
        // The drop gives the frame back.
    }
    println!("{right}");
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
    fn start() -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.arg("reader").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (process.stdin.take().ok_or("a pipe")?, process.stdout.take().ok_or("a pipe")?);
        Ok(Self { process, input, output })
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.input.write_all(&u32::try_from(message.len())?.to_le_bytes())?;
        self.input.write_all(message)?;
        Ok(self.input.flush()?)
    }

    /// Ends the messages, and returns what the reader has counted.
    fn finish(mut self) -> Result<u64, Error> {
        drop(self.input);
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        self.process.wait()?;
        Ok(text.trim().parse()?)
    }
}
