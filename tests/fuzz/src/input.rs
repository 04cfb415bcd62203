//! The encoding of fuzz inputs: one byte for common numbers, so that mutations are effective, and full width for all
//! others.
//!
//! [`Input`] decodes what [`Output`] encodes. Any bytes are a valid input; zeros follow after the end.

/// Bytes below this value encode the number itself, counted from [`LOWEST`].
const SMALL: u8 = 240;
/// The smallest number that one byte can encode.
const LOWEST: i64 = -64;
/// Tags for numbers near a power of two or near the maximum, and for numbers in full width.
const POWER: u8 = 253;
const NEAR_MOST: u8 = 254;
const WHOLE: u8 = 255;

/// Decodes bytes to numbers, lists and texts.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Starts to read at the first byte.
    #[must_use]
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Returns the next byte, or 0 after the last.
    pub fn byte(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    /// Returns the next bytes, with zeros after the last.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (head, rest) = self.rest.split_at(N.min(self.rest.len()));
        bytes[..head.len()].copy_from_slice(head);
        self.rest = rest;
        bytes
    }

    /// Returns a number, which is small in most inputs.
    pub fn number(&mut self) -> i64 {
        match self.byte() {
            byte if byte < SMALL => i64::from(byte) + LOWEST,
            // Near a power of two, or near the limits, products and sums overflow.
            POWER => {
                let [power, beside] = self.bytes();
                (1_i64 << (power % 63)).wrapping_add(i64::from(beside) - 128)
            }
            NEAR_MOST => i64::MAX.wrapping_add(i64::from(self.byte()) - 128),
            _ => i64::from_le_bytes(self.bytes()),
        }
    }

    /// Returns a list of at most `most` numbers.
    pub fn list(&mut self, most: u8) -> Vec<i64> {
        let len = self.byte() % (most + 1);
        (0..len).map(|_| self.number()).collect()
    }

    /// Returns what `read` returns, or `None`.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.byte() % 2 == 1).then(|| read(self))
    }

    /// Returns a text of at most `most` bytes.
    pub fn text(&mut self, most: u8) -> String {
        let len = usize::from(self.byte() % (most + 1)).min(self.rest.len());
        let (text, rest) = self.rest.split_at(len);
        self.rest = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

/// Encodes values as bytes.
#[derive(Clone, Debug, Default)]
pub struct Output(
    /// The bytes so far.
    pub Vec<u8>,
);

impl Output {
    /// Writes a byte.
    pub fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    /// Writes a number.
    pub fn number(&mut self, number: i64) -> &mut Self {
        let small = number.checked_sub(LOWEST).and_then(|above| u8::try_from(above).ok());
        if let Some(byte) = small.filter(|byte| *byte < SMALL) {
            self.0.push(byte);
        } else {
            self.0.push(WHOLE);
            self.0.extend(number.to_le_bytes());
        }
        self
    }

    /// Writes a list for [`Input::list`]. A longer list is truncated.
    pub fn list(&mut self, numbers: &[i64], most: u8) -> &mut Self {
        let len = numbers.len().min(usize::from(most));
        self.0.push(u8::try_from(len).unwrap_or(most));
        numbers[..len].iter().fold(self, |output, number| output.number(*number))
    }

    /// Writes whether there is a value, and then the value.
    pub fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    /// Writes a text for [`Input::text`]. A longer text is truncated.
    pub fn text(&mut self, text: &str, most: u8) -> &mut Self {
        let len = text.len().min(usize::from(most));
        self.0.push(u8::try_from(len).unwrap_or(most));
        self.0.extend(&text.as_bytes()[..len]);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let numbers = [0, -64, -65, 175, 176, 255, i64::MAX, i64::MIN];
        let mut output = Output::default();
        output.list(&numbers, 70).text("<f4", 24).optional(Some(7), |output, number| {
            output.number(number);
        });
        output.optional(None::<i64>, |_, _| {}).byte(9);
        let mut input = Input::new(&output.0);
        assert_eq!(input.list(70), numbers);
        assert_eq!(input.text(24), "<f4");
        assert_eq!(input.optional(Input::number), Some(7));
        assert_eq!((input.optional(Input::number), input.byte()), (None, 9));
        assert_eq!((input.byte(), input.number(), input.list(3)), (0, -64, vec![]));
    }
}
