//! What the parameters of a kernel are in bytes, and what its code is, as text. The device build writes it into the PTX, and a launch compares it with
//! that of the host: a type may differ between the two, by `cfg(target_arch)` or because the PTX is old.
#![expect(clippy::cast_possible_truncation, reason = "single digits")]

/// The maximum number of bytes of a text.
const CAPACITY: usize = 1024;

/// A text that is written at compile time. If it is too long, its end is a checksum of all of it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    bytes: [u8; CAPACITY],
    len: usize,
    /// FNV-1a.
    checksum: u64,
    /// The size of the type that it describes.
    size: usize,
}

impl Layout {
    pub(crate) const EMPTY: Self =
        Self { bytes: [0; CAPACITY], len: 0, checksum: 0xCBF2_9CE4_8422_2325, size: 0 };

    pub(crate) const fn new(size: usize, text: &str) -> Self {
        Self { size, ..Self::EMPTY }.text(text)
    }

    /// Describes an element: that of a struct by its fields, which have no padding between them. It is a method, so that expanded
    /// code has it of a layout: a path could lead to another function.
    ///
    /// # Panics
    ///
    /// At compile time, if there is padding.
    #[must_use]
    pub const fn of_element<T>(self, fields: &[(&str, Self)]) -> Self {
        let (mut layout, mut offset, mut at) = (Self::new(size_of::<T>(), "{"), 0, 0);
        while at < fields.len() {
            let (name, field) = &fields[at];
            layout = layout.text(name).text(": ").layout(field).text(" at ").number(offset).text(", ");
            offset += field.size;
            at += 1;
        }
        assert!(
            fields.is_empty() || offset == size_of::<T>(),
            "the struct has padding, which a launch would pass as bytes: order the fields from large to small, and add one for the rest"
        );
        layout.text("size ").number(size_of::<T>()).text(", alignment ").number(align_of::<T>()).text("}")
    }

    /// Describes the parameters of a kernel, one a line, and after them its code, by a checksum.
    #[must_use]
    pub const fn of_kernel<P: Layouts>(names: &[&str], code: &str) -> Self {
        let (mut layout, mut at) = (Self::new(0, ""), 0);
        while at < names.len() {
            layout = layout.text(names[at]).text(": ").layout(&P::LAYOUTS[at]).text("\n");
            at += 1;
        }
        layout = layout.text("{code ").text(code).text("}\n");
        layout.bytes = layout.to_bytes();
        layout
    }

    const fn push(mut self, byte: u8) -> Self {
        if self.len < CAPACITY {
            self.bytes[self.len] = byte;
        }
        self.len += 1;
        self.checksum = (self.checksum ^ byte as u64).wrapping_mul(0x0000_0100_0000_01B3);
        self
    }

    pub(crate) const fn text(mut self, text: &str) -> Self {
        let mut at = 0;
        while at < text.len() {
            self = self.push(text.as_bytes()[at]);
            at += 1;
        }
        self
    }

    pub(crate) const fn layout(mut self, other: &Self) -> Self {
        let mut at = 0;
        while at < other.len() {
            self = self.push(other.byte(at));
            at += 1;
        }
        self
    }

    pub(crate) const fn number(mut self, number: usize) -> Self {
        if number > 9 {
            self = self.number(number / 10);
        }
        self.push(b'0' + (number % 10) as u8)
    }

    /// The number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "the length of an array")]
    pub const fn len(&self) -> usize {
        if self.len < CAPACITY { self.len } else { CAPACITY }
    }

    const fn byte(&self, at: usize) -> u8 {
        let digits = CAPACITY - at;
        if self.len <= CAPACITY || digits > 16 {
            return self.bytes[at];
        }
        b"0123456789abcdef"[(self.checksum >> (4 * (digits - 1))) as usize % 16]
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// Returns the first `N` bytes of the text.
    #[must_use]
    pub const fn to_bytes<const N: usize>(&self) -> [u8; N] {
        let (mut bytes, mut at) = ([0; N], 0);
        while at < N && at < self.len() {
            bytes[at] = self.byte(at);
            at += 1;
        }
        bytes
    }
}

/// A parameter whose bytes are known: a view, an `Elementwise`, or an element.
pub trait HasLayout: Sized {
    const LAYOUT: Layout;
    /// Whether threads learn of each other through elements.
    const IS_ATOMIC: bool = false;
}

/// The parameters of a kernel, as a tuple.
pub trait Layouts {
    const LAYOUTS: &'static [Layout];
    /// Whether threads learn of each other through one of them.
    const HAS_ATOMIC: bool;
}

/// Fails at compile time for a team whose threads learn of each other.
pub(crate) const fn assert_beside(is_team: bool, has_atomic: bool) {
    assert!(
        !(is_team && has_atomic),
        "found `Atomic` beside a `Team`: `add` would tell each thread of a team another value, and they must all make the same calls; \
         write a `ViewMut` by `Rows`, or add in a second kernel, with a `Thread`"
    );
}

macro_rules! tuples {
    ($($first:ident $($other:ident)*)?) => {
        impl$(<$first: HasLayout $(, $other: HasLayout)*>)? Layouts for ($($first, $($other,)*)?) {
            const LAYOUTS: &'static [Layout] = &[$($first::LAYOUT, $($other::LAYOUT),*)?];
            const HAS_ATOMIC: bool = false $(|| $first::IS_ATOMIC $(|| $other::IS_ATOMIC)*)?;
        }
        $(tuples!($($other)*);)?
    };
}

tuples!(A B C D E F G H I J K L);

#[cfg(test)]
mod tests {
    use super::{CAPACITY, HasLayout, Layout};
    use crate::{Atomic, Blocks, Elementwise, In, KernelElement, Out, Packs, Rows, Tiles, View, ViewMut};

    #[derive(Clone, Copy, KernelElement)]
    #[repr(C)]
    struct Particle {
        place: [f32; 2],
        r#type: Kind,
    }

    #[derive(Clone, Copy, KernelElement)]
    #[repr(transparent)]
    struct Kind(u32);

    /// As users write it for types of other crates.
    #[derive(Clone, Copy)]
    #[repr(C, align(16))]
    struct Foreign([f32; 4]);

    #[expect(unsafe_code, reason = "as users write it")]
    // SAFETY: four numbers.
    unsafe impl KernelElement for Foreign {}

    fn text<P: HasLayout>() -> String {
        String::from_utf8(P::LAYOUT.as_bytes().to_vec()).expect("text")
    }

    #[test]
    fn parameters_are_described_by_their_bytes() {
        let kind = "{f0: u32 at 0, size 4, alignment 4}";
        let particle = format!("{{place: [f32; 2] at 0, type: {kind} at 8, size 12, alignment 4}}");
        assert_eq!(text::<u16>(), "u16");
        assert_eq!(text::<Particle>(), particle);
        assert_eq!(text::<View<'_, Particle, 12>>(), format!("View<{particle}, 12>"));
        assert_eq!(text::<ViewMut<'_, Foreign, 0>>(), "ViewMut<{size 16, alignment 16}, 0>");
        assert_eq!(text::<ViewMut<'_, i64, 1, Packs<4>>>(), "ViewMut<i64, 1, Packs<4>>");
        assert_eq!(text::<ViewMut<'_, i64, 1, Tiles<10>>>(), "ViewMut<i64, 1, Tiles<10>>");
        assert_eq!(text::<ViewMut<'_, i64, 1, Blocks>>(), "ViewMut<i64, 1, Blocks>");
        assert_eq!(text::<ViewMut<'_, i64, 1, Rows>>(), "ViewMut<i64, 1, Rows>");
        assert_eq!(text::<ViewMut<'_, u32, 1, Atomic>>(), "ViewMut<u32, 1, Atomic>");
        assert_eq!(text::<Elementwise<'_, (Out<f32>, In<u8>)>>(), "Elementwise<Out f32, In u8, 4>");
        assert_eq!(text::<Elementwise<'_, (In<f32>,), 8>>(), "Elementwise<In f32, 8>");
    }

    #[test]
    fn ends_of_long_texts_differ() {
        let long = |end| Layout::new(0, &"x".repeat(2 * CAPACITY)).text(end);
        let texts = ["a", "b"].map(|end| Layout::EMPTY.text("of ").layout(&long(end)));
        let [left, right] = [0, 1].map(|at| texts[at].to_bytes::<CAPACITY>());
        assert_eq!((&left[..CAPACITY - 16], texts[0].len()), (&right[..CAPACITY - 16], CAPACITY));
        assert_ne!(left[CAPACITY - 16..], right[CAPACITY - 16..]);
    }
}
