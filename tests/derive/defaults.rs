//! `default` and `default = expression`: the values that an import gives to fields without a role.

use std::collections::BTreeMap;
use std::ops::{Range, RangeFull};
use std::sync::atomic::{AtomicU32, Ordering};

use interop_core::{CudaArray, Error, ErrorKind, FromArray, Lease, Result};

use crate::support::{Foreign, count};

static SERIAL: AtomicU32 = AtomicU32::new(7);

fn pair<A, B>(a: A, b: B) -> (A, B) {
    (a, b)
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples<T = ()> {
    #[cuda_array(default)]
    names: BTreeMap<String, u32>,
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(default = SERIAL.fetch_add(1, Ordering::SeqCst))]
    serial: u32,
    len: usize,
    #[cuda_array(default = pair::<u8, char>(1, 'x'))]
    turbofish: (u8, char),
    #[cuda_array(default = |a: u32, b: u32| a + b)]
    closure: fn(u32, u32) -> u32,
    #[cuda_array(default = { let half = 21; half * 2 })]
    block: u64,
    #[cuda_array(default = if cfg!(test) { vec![1, 2] } else { Vec::new() })]
    choice: Vec<u8>,
    #[cuda_array(default = match 3_u8 { 0..=2 => "few", _ => "many" })]
    matched: &'static str,
    #[cuda_array(default = [0; 3])]
    array: [u8; 3],
    #[cuda_array(default = 1 << 3 | 1)]
    operators: i32,
    #[cuda_array(default)]
    generic: T,
    #[cuda_array(default = Self::MARK)]
    associated: u8,
    #[cuda_array(default = pair::<u8, Result<u8>>(1, parsed("7")).1?.saturating_add(1))]
    tried: u8,
    #[cuda_array(default = 2..4)]
    range: Range<u8>,
    #[cuda_array(default = ..)]
    whole: RangeFull,
}

fn parsed(text: &str) -> Result<u8> {
    text.parse().map_err(|_| Error::new(ErrorKind::Shape, "text", text, "a number"))
}

impl<T> Samples<T> {
    const MARK: u8 = 9;
}

#[test]
fn every_kind_of_expression_fills_its_field() {
    let (import, _) = Foreign::new(&count(3), &[3]).send();
    let samples = Samples::<Option<u8>>::from_import(import).unwrap();
    assert_eq!(samples.values, count(3));
    assert_eq!((samples.len, samples.serial), (3, 7));
    assert!(samples.names.is_empty());
    assert_eq!(samples.turbofish, (1, 'x'));
    assert_eq!((samples.closure)(2, 3), 5);
    assert_eq!((samples.block, samples.choice.as_slice(), samples.matched), (42, &[1, 2][..], "many"));
    assert_eq!((samples.array, samples.operators, samples.generic), ([0; 3], 9, None));
    assert_eq!((samples.associated, samples.tried), (9, 8));
    assert_eq!((samples.range, samples.whole), (2..4, ..));
}

#[test]
fn a_default_that_fails_gives_the_import_back() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [len])]
    struct Tried {
        #[cuda_array(data)]
        values: Lease<f32>,
        len: usize,
        #[cuda_array(default = parsed("seven")?)]
        number: u8,
    }

    let (import, receipt) = Foreign::new(&count(3), &[3]).send();
    let refused =
        Tried::from_import(import).map(|tried| (tried.values, tried.len, tried.number)).err().unwrap();
    assert_eq!((refused.error.location(), receipt.releases()), ("text", 0));
    assert_eq!(refused.value.info().address(), receipt.address);
}

#[test]
fn a_default_is_not_asked_for_when_the_import_is_refused() {
    static ASKED: AtomicU32 = AtomicU32::new(0);

    #[derive(CudaArray)]
    #[cuda_array(shape = [2])]
    struct Pair {
        #[cuda_array(default = ASKED.fetch_add(1, Ordering::SeqCst))]
        asked: u32,
        #[cuda_array(data)]
        values: Vec<f32>,
    }

    let (import, _) = Foreign::new(&count(3), &[3]).send();
    assert!(Pair::from_import(import).is_err());
    assert_eq!(ASKED.load(Ordering::SeqCst), 0);
    let (import, _) = Foreign::new(&count(2), &[2]).send();
    let pair = Pair::from_import(import).unwrap();
    assert_eq!((pair.asked, pair.values), (0, count(2)));
}

#[derive(CudaArray)]
#[cuda_array(shape = [len, 2])]
struct Pairs {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: u8,
    #[cuda_array(default = never())]
    label: String,
}

fn never() -> String {
    unreachable!("the import was refused")
}

/// An import that is refused does not run user code.
#[test]
fn a_refused_import_calls_for_no_default() {
    for (shape, place) in [(&[6][..], "shape"), (&[2, 3], "shape[1]")] {
        let (import, _) = Foreign::new(&count(6), shape).send();
        let refused = Pairs::from_import(import).map(|pairs| pairs.label).unwrap_err();
        assert_eq!((refused.error.location(), refused.value.info().shape().len()), (place, shape.len()));
    }
}
