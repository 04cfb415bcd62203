//! What the text of a PTX says about its kernels: the sizes of their parameters, what `#[kernel]` has written, and the variables that
//! they write.

use std::collections::{HashMap, HashSet};

/// Returns the sizes of an entry point's parameters in bytes, or `None` if the PTX has no such entry point.
///
/// A parameter is written `.param .b32 name`, or `.param .align 8 .b8 name[24]`.
pub(crate) fn sizes_in(ptx: &str, name: &str) -> Option<Vec<usize>> {
    let (_, list) = ptx.split_once(&format!(".entry {name}("))?;
    let (list, _) = list.split_once(')')?;
    let size = |parameter: &str| {
        let mut words = parameter.split_whitespace();
        let bits = words.find_map(|word| word.strip_prefix(['.'])?.get(1..)?.parse::<usize>().ok())?;
        let (_, count) = words.last()?.split_once('[').unwrap_or(("", "1]"));
        Some(bits / 8 * count.strip_suffix(']')?.parse::<usize>().ok()?)
    };
    list.split_terminator(',').filter(|parameter| parameter.contains(".param")).map(size).collect()
}

/// Returns what `#[kernel]` has written about an entry point, as a constant. PTX that was written in another way has none.
///
/// It is written `.b8 interop_layout_name[2] = {120, 10};`.
pub(crate) fn layout_in(ptx: &str, name: &str) -> Option<Vec<u8>> {
    let (_, constant) = ptx.split_once(&format!(" interop_layout_{name}["))?;
    let (_, list) = constant.split_once('{')?;
    let (list, _) = list.split_once('}')?;
    list.split_terminator(',').map(|byte| byte.trim().parse().ok()).collect()
}

/// Returns the first lines that differ: the parameters and, after them, the checksum of the kernel's code.
pub(crate) fn first_difference(found: &str, own: &str) -> (String, String) {
    let (mut found, mut own) = (found.lines(), own.lines());
    loop {
        match (found.next(), own.next()) {
            (Some(found), Some(own)) if found == own => {}
            (_, Some(own)) if own.starts_with(CODE) => {
                return ("other code of the kernel".to_owned(), "the code of the kernel".to_owned());
            }
            pair => {
                let is_parameter = |line: &&str| !line.starts_with(CODE);
                let of = |line: Option<&str>| {
                    line.filter(is_parameter)
                        .map_or_else(|| "no further parameter".to_owned(), |line| format!("`{line}`"))
                };
                return (of(pair.0), of(pair.1));
            }
        }
    }
}

/// How the line with the checksum of the code begins.
const CODE: &str = "{code ";

/// Returns a variable of the program in the memory of the device that a kernel writes: an atomic `static` of Rust, a `__device__` of C++.
///
/// An address is followed through registers, whatever is computed with it. What is stored itself may be written anywhere.
pub(crate) fn written_variable(ptx: &str) -> Option<&str> {
    let variables = Variables::of(ptx);
    if variables.names.is_empty() {
        return None;
    }
    // Registers have names of their own in each function.
    ptx.split(".entry ")
        .flat_map(|part| part.split(".func "))
        .find_map(|function| variables.written(function))
}

/// The variables in the memory of the device.
struct Variables<'p> {
    names: HashSet<&'p str>,
    /// Those that have addresses of others.
    have_addresses: HashSet<&'p str>,
}

impl<'p> Variables<'p> {
    /// Finds the declarations, such as `.visible .global .align 4 .b8 COUNT[4] = {7};`.
    fn of(ptx: &'p str) -> Self {
        let declared = ptx.lines().filter_map(|line| {
            let (before, line) = line.split_once(".global ")?;
            // Instructions have it behind a dot, and end with the operands.
            let is_declaration = before.split_whitespace().all(|word| word.starts_with('.'));
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let name = name.split('[').next()?.trim().trim_end_matches(';').split_whitespace().last()?;
            (is_declaration && !name.starts_with("interop_layout_")).then_some((name, value))
        });
        let declared: Vec<_> = declared.collect();
        let names = declared.iter().map(|(name, _)| *name).collect();
        let is_address =
            |word: &str| word.starts_with(|letter: char| letter.is_alphabetic() || "_$%".contains(letter));
        let with_addresses = declared.iter().filter(|(_, value)| words(value).any(is_address));
        Self { have_addresses: with_addresses.map(|(name, _)| *name).collect(), names }
    }

    /// Returns a variable that a function writes.
    fn written(&self, function: &'p str) -> Option<&'p str> {
        let mut registers: HashMap<&str, &str> = HashMap::new();
        loop {
            let known = registers.len();
            for instruction in function.split([';', '{', '\n']).map(str::trim) {
                // A predicate comes before the operation.
                let mut parts = instruction.split_whitespace().skip_while(|word| word.starts_with('@'));
                let Some(operation) = parts.next() else { continue };
                let operands = operation.as_ptr() as usize - instruction.as_ptr() as usize + operation.len();
                let mut operands = words(&instruction[operands..]);
                let source = |word: &str| self.names.get(word).or_else(|| registers.get(word)).copied();
                let is_write =
                    ["st.", "red.", "atom.", "call"].iter().any(|start| operation.starts_with(start));
                if is_write {
                    if let Some(variable) = operands.find_map(source) {
                        return Some(variable);
                    }
                    continue;
                }
                let Some(result) = operands.next() else { continue };
                let Some(variable) = operands.find_map(source) else { continue };
                // An element of a table is a number, if no element is an address.
                if !operation.starts_with("ld") || self.have_addresses.contains(variable) {
                    registers.insert(result, variable);
                }
            }
            if registers.len() == known {
                return None;
            }
        }
    }
}

/// The names and the numbers in a part of PTX.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || "_$%.".contains(letter);
    text.split(move |letter| !is_part(letter)).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{first_difference, layout_in, sizes_in, written_variable};

    #[test]
    fn sizes_of_parameters_are_read() {
        let ptx = ".visible .entry none()\n.visible .entry all(\n\t.param .align 8 .b8 all_param_0[24],\n\
            \t.param .b32 all_param_1,\n\t.param .u64 .ptr .global .align 4 all_param_2,\n\t.param .u8 all_param_3\n)\n";
        assert_eq!(sizes_in(ptx, "none"), Some(Vec::new()));
        assert_eq!(sizes_in(ptx, "all"), Some(vec![24, 4, 8, 1]));
        assert_eq!(sizes_in(ptx, "al"), None);
    }

    #[test]
    fn layouts_of_parameters_are_read() {
        let ptx = ".visible .global .align 1 .b8 interop_layout_ab[1] = {48};\n\
            .visible .global .align 1 .b8 interop_layout_a[3] = {120, 58, 10};\n.visible .entry a()\n";
        assert_eq!(layout_in(ptx, "a").as_deref(), Some(&b"x:\n"[..]));
        assert_eq!(layout_in(ptx, "b"), None);
        assert_eq!(
            first_difference("x: u8\ny: u8\n", "x: u8\ny: i8\n"),
            ("`y: u8`".into(), "`y: i8`".into())
        );
        assert_eq!(first_difference("", "x: u8\n").0, "no further parameter");
        let code = ("other code of the kernel".into(), "the code of the kernel".into());
        assert_eq!(first_difference("x: u8\n{code 1}\n", "x: u8\n{code 2}\n"), code);
        assert_eq!(first_difference("x: u8\n", "x: u8\n{code 2}\n"), code);
        assert_eq!(first_difference("{code 1}\n", "x: u8\n{code 1}\n").0, "no further parameter");
    }

    /// As rustc and NVRTC write them.
    #[test]
    fn variables_that_kernels_write_are_found() {
        let of = |declarations: &str, instructions: &str| {
            let ptx = format!(
                "{declarations}\n.visible .global .align 1 .b8 interop_layout_a[1] = {{48}};\n\
                 .visible .entry a(\n\t.param .u64 a_param_0\n)\n{{\n\t.reg .b64 \t%rd<4>;\n{instructions}\n\tret;\n}}\n"
            );
            written_variable(&ptx).map(str::to_owned)
        };
        let count = ".global .align 4 .b8 _R1s5COUNT_$_0[4];";
        let table = ".global .align 4 .b8 TABLE[8] = {0, 0, 0, 63, 0, 0, 128, 63};";
        let behind = ".global .align 8 .u64 BEHIND = generic(_R1s5COUNT_$_0);";
        let found = Some("_R1s5COUNT_$_0".to_owned());
        assert_eq!(of(count, "\tatom.global.add.u32 \t%r1, [_R1s5COUNT_$_0], 1;"), found);
        assert_eq!(of(count, "$L__BB0_2:\n\t@%p1 st.relaxed.sys.global.b8 \t[_R1s5COUNT_$_0+2], 1;"), found);
        // Through registers, also if they are used before they are written in the text.
        let steps = "\tred.global.add.u32 [%rd3], 1;\n\tadd.s64 \t%rd3, %rd2, %rd1;\n\tmov.b64 \t%rd2, _R1s5COUNT_$_0;";
        assert_eq!(of(count, steps), found);
        let block =
            "{ .reg .u64 place; cvta.to.global.u64 place, %rd1; atom.global.add.u32 %r1, [place], %r2; }";
        assert_eq!(of(count, &format!("\tmov.b64 \t%rd1, _R1s5COUNT_$_0;\n\t{block}")), found);
        assert_eq!(of(count, &format!("\tld.param.b64 \t%rd1, [a_param_0];\n\t{block}")), None);
        assert_eq!(of(count, "\tmov.b64 \t%rd1, _R1s5COUNT_$_0;\n\tst.global.b64 \t[%rd2], %rd1;"), found);
        // A table is read, and its elements are written elsewhere.
        let read =
            "\tmov.b64 \t%rd1, TABLE;\n\tld.global.nc.b32 \t%r1, [%rd1+4];\n\tst.global.b32 \t[%rd2], %r1;";
        assert_eq!(of(table, read), None);
        assert_eq!(of(&format!("{count}\n{table}"), read), None);
        let through = "\tld.global.b64 \t%rd1, [BEHIND];\n\tst.b32 \t[%rd1], 1;";
        assert_eq!(of(&format!("{count}\n{behind}"), through), Some("BEHIND".to_owned()));
        assert_eq!(of("", "\tst.global.b32 \t[%rd2], %r1;"), None);
    }
}
