//! Writes random kernels, and for each a function by which `compare.rs` launches it.
//!
//! `RANDOM_KERNELS_SEED` is the seed, and `RANDOM_KERNELS` the number of kernels. They have only operations whose results are the same on
//! every processor: of `math` the exact functions, and no sum of floats in an order that varies.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// Elements of arrays, and of those that kernels of rows read.
const ELEMENTS: [&str; 12] =
    ["f32", "f32", "f64", "bf16", "f16", "i8", "i16", "i32", "i64", "u8", "u32", "u64"];
const OF_ROWS: [&str; 4] = ["f32", "bf16", "f16", "u8"];
/// Numbers in which kernels compute, and elements to which several threads add.
const NUMBERS: [&str; 6] = ["f32", "f32", "f64", "i32", "u32", "i64"];
const ATOMIC: [&str; 6] = ["u32", "i32", "u64", "i64", "f32", "f64"];

const USES: &str = "use interop_kernel::half::{bf16, f16};\nuse interop_kernel::{Atomic, Elementwise, In, Out, Packs, Real, RowElement, Rows, \
                    Team, Thread, Tiles, View, ViewMut, kernel, math};\n";

fn main() {
    let number = |name: &str, default| {
        println!("cargo::rerun-if-env-changed={name}");
        env::var(name).map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let (seed, count) = (number("RANDOM_KERNELS_SEED", 1), number("RANDOM_KERNELS", 8));
    let (mut kernels, mut cases, mut names) = (USES.to_owned(), String::new(), String::new());
    for at in 0..count {
        let random = Random(seed.wrapping_mul(1_000_003) + at);
        let mut kernel = Kernel { random, number: "f32", parameters: String::new(), arrays: Vec::new() };
        let name = format!("k{seed}_{at}");
        let (thread, body) = match at % 4 {
            0 => ("thread: Thread", kernel.elements()),
            2 => ("thread: Thread", kernel.elementwise()),
            _ => ("mut team: Team", kernel.rows()),
        };
        let of = &kernel.parameters;
        let _ = writeln!(kernels, "#[kernel]\npub fn {name}({thread}<'_>{of}, by: i16) {{\n{body}}}\n");
        cases += &kernel.case(&name);
        let _ = write!(names, "(\"{name}\", {name}), ");
    }
    let _ = writeln!(cases, "const CASES: &[(&str, Case)] = &[{names}];");
    println!(
        "cargo::rerun-if-changed=generate.rs\ncargo::rerun-if-changed=random.rs\ncargo::rerun-if-env-changed=RANDOM_KERNELS_PTX"
    );
    println!("cargo::rustc-check-cfg=cfg(has_ptx)");
    let ptx = env::var_os("RANDOM_KERNELS_PTX").map_or_else(String::new, |file| {
        println!("cargo::rustc-cfg=has_ptx\ncargo::rerun-if-changed={}", file.to_string_lossy());
        fs::read_to_string(file).expect("the PTX")
    });
    let folder = env::var_os("OUT_DIR").expect("a folder");
    for (name, text) in [("kernels.rs", kernels), ("cases.rs", cases), ("kernels.ptx", ptx)] {
        fs::write(Path::new(&folder).join(name), text).expect("a file");
    }
}

/// A kernel so far.
struct Kernel {
    random: Random,
    /// The type of its expressions.
    number: &'static str,
    /// The text of its parameters, and the arrays among them.
    parameters: String,
    arrays: Vec<Array>,
}

struct Array {
    name: &'static str,
    element: &'static str,
    /// The extents of each axis.
    shape: &'static str,
    is_written: bool,
    /// Whether it is one of an `Elementwise`.
    is_in_list: bool,
}

impl Kernel {
    /// Adds an array. `mapping` is `None` for one that is read.
    fn array(
        &mut self,
        name: &'static str,
        element: &'static str,
        shape: &'static str,
        mapping: Option<&str>,
    ) {
        let (word, view) = if mapping.is_some() { ("mut ", "ViewMut") } else { ("", "View") };
        let (rank, mapping) = (shape.split(',').count(), mapping.unwrap_or_default());
        let _ = write!(self.parameters, ", {word}{name}: {view}<'_, {element}, {rank}{mapping}>");
        let is_written = !word.is_empty();
        self.arrays.push(Array { name, element, shape, is_written, is_in_list: false });
    }

    /// The function that launches the kernel.
    fn case(&mut self, name: &str) -> String {
        let by = self.random.below(200) as i64 - 100;
        let (mut made, mut bits) = (String::new(), String::new());
        let (mut views, mut lent) = ([String::new(), String::new()], [String::new(), String::new()]);
        for Array { name, element, shape, is_written, is_in_list } in &self.arrays {
            let _ = writeln!(
                made,
                "    let mut {name} = launch.array::<{element}, _>(\"{name}\", [{shape}], {is_written});"
            );
            let _ = write!(bits, "{name}.bits(launch.place), ");
            let (view, door, word) =
                if *is_written { ("view_mut", "write", "&mut ") } else { ("view", "read", "&") };
            let list = usize::from(*is_in_list);
            let view = if *is_in_list && *is_written { "view_mut::<Elements>" } else { view };
            let _ = write!(views[list], "{name}.{view}(), ");
            let _ = if *is_in_list {
                write!(lent[list], "{word}{name}.array, ")
            } else {
                write!(lent[list], "scope.{door}({word}{name}.array).unwrap(), ")
            };
        }
        let [views, list] = views;
        let (run, launched) = if list.is_empty() {
            (String::new(), String::new())
        } else {
            let lent = &lent[1];
            (
                format!("Elementwise::new(({list})).unwrap(), "),
                format!("scope.elementwise(({lent})).unwrap(), "),
            )
        };
        let (lent, size) = (&lent[0], if self.parameters.contains("Rows") { "rows" } else { "units" });
        format!(
            "fn {name}(mut launch: Launch) -> Vec<Vec<u64>> {{
    let [depth, rows, columns] = launch.shape;
{made}    let size = launch.{size}();
    if launch.place == Place::Run {{
        kernels::{name}::run(size, {run}{views}{by});
    }} else {{
        let scope = LaunchScope::new();
        scope.launch(&KERNELS, size, kernels::{name}::with({launched}{lent}{by})).unwrap();
        scope.finish().unwrap();
    }}
    vec![{bits}]
}}\n"
        )
    }

    /// Loops over own elements: single ones, packs or tiles, with one or two axes.
    fn elements(&mut self) -> String {
        self.number = self.random.pick(&NUMBERS);
        let is_flat = self.random.below(3) == 0;
        let (shape, at) = if is_flat { ("columns", "[x]") } else { ("rows, columns", "[y, x]") };
        let loops = self.random.pick(if is_flat {
            &["elements", "packs"]
        } else {
            &["elements", "elements", "packs", "tiles"]
        });
        let mapping = match loops {
            "packs" => ", Packs<4>",
            "tiles" => ", Tiles<3>",
            _ => "",
        };
        let element = self.random.pick(&ELEMENTS);
        self.array("out", element, shape, Some(mapping));
        let mut leaves = vec![self.read("f32", "x"), self.read("i16", "by")];
        if !is_flat {
            leaves.push(self.read("f32", "y"));
        }
        let counted = leaves.clone();
        for name in ["a", "b", "c"].into_iter().take(self.random.below(4)) {
            let element = self.random.pick(&ELEMENTS);
            let (shape, place) = match self.random.below(5) {
                0 if !is_flat => ("columns", "get([x])"),
                1 if !is_flat => ("columns, rows", "get([x, y])"),
                2 if is_flat => (shape, "nearest([x as isize - 1])"),
                2 => (shape, "nearest([y as isize + 1, x as isize - 2])"),
                _ if loops == "packs" => (shape, "pack(at, Default::default())[1]"),
                _ => (shape, "get(at)"),
            };
            self.array(name, element, shape, None);
            leaves.push(self.read(element, &format!("{name}.{place}")));
        }
        let mut body = String::new();
        let set = |kernel: &mut Self, own: &str| {
            let leaves = [&leaves[..], &[kernel.read(element, own)]].concat();
            kernel.value(element, 3, &leaves)
        };
        if loops == "packs" {
            let values = [0, 1, 2, 3].map(|lane| set(self, &format!("pack[{lane}]"))).join(", ");
            let pack = "let pack = out.pack(at, Default::default())";
            let _ = writeln!(
                body,
                "for at in thread.packs(out.shape()) {{ let {at} = at.at(); {pack}; out.set_pack(at, [{values}]); }}"
            );
        }
        for _ in 0..if loops == "packs" { 0 } else { 1 + self.random.below(2) } {
            let work = format!("let {at} = at.at(); out.set(at, {});", set(self, "out.get(at)"));
            let _ = match (loops, self.random.below(2)) {
                ("tiles", _) => writeln!(
                    body,
                    "for tile in thread.tiles(out.shape()) {{ for at in tile.rows() {{ {work} }} }}"
                ),
                (_, 0) => writeln!(body, "for at in thread.elements(out.shape()) {{ {work} }}"),
                _ => writeln!(body, "thread.elements(out.shape()).for_each(|at| {{ {work} }});"),
            };
        }
        let count = self.count(&counted);
        body + &format!("for at in thread.elements([37]) {{ let [x] = at.at(); let y = x / 2; {count} }}\n")
    }

    /// Adds an array to which threads add, and returns the statement.
    fn count(&mut self, leaves: &[String]) -> String {
        let element = self.random.pick(&ATOMIC);
        self.array("counts", element, "5", Some(", Atomic"));
        let (bin, value) = (self.value("i64", 1, leaves), self.value("i64", 2, leaves));
        // Sums of small integers are the same in every order, also as floats.
        let mask = if element.starts_with('f') { 7 } else { u32::MAX };
        format!("counts.add([({bin}).rem_euclid(5) as usize], (({value}) & {mask}) as {element});")
    }

    /// Arrays of one shape with three axes.
    fn elementwise(&mut self) -> String {
        self.number = self.random.pick(&NUMBERS);
        let kind = self.random.pick(&["map", "map", "map_inplace", "for_each"]);
        let names = &["a", "b", "c", "d"][..=self.random.below(4).max(usize::from(kind == "map"))];
        let (mut list, mut leaves) = (String::new(), vec![self.read("i16", "by")]);
        for &name in names {
            let (element, is_written) = (self.random.pick(&ELEMENTS), name == "a" && kind != "for_each");
            let _ = write!(list, "{}<{element}>, ", if is_written { "Out" } else { "In" });
            let shape = "depth, rows, columns";
            self.arrays.push(Array { name, element, shape, is_written, is_in_list: true });
            if name != "a" || kind != "map" {
                leaves.push(self.read(element, name));
            }
        }
        let _ = write!(self.parameters, ", arrays: Elementwise<'_, ({list})>");
        let value = if kind == "for_each" {
            format!("{{ {} }}", self.count(&leaves))
        } else {
            self.value(self.arrays[0].element, 3, &leaves)
        };
        format!("arrays.{kind}(&thread, |{}| {value});\n", names[usize::from(kind == "map")..].join(", "))
    }

    /// Reductions of rows, and what follows from them.
    fn rows(&mut self) -> String {
        let [x, out, sums] = [&OF_ROWS[..3], &OF_ROWS[..3], &ELEMENTS].map(|from| self.random.pick(from));
        self.array("x", x, "rows, columns", None);
        for (name, shape) in [("w", "columns"), ("m", "rows, columns"), ("few", "rows / 2, columns")] {
            let element = self.random.pick(&OF_ROWS);
            self.array(name, element, shape, None);
        }
        self.array("out", out, "rows, columns", Some(", Rows"));
        self.array("sums", sums, "rows", Some(", Rows"));
        let mut body =
            "for row in team.rows(&x) {\nlet (columns, number) = (row.columns(), row.number() as f32);\n"
                .to_owned();
        body += self.random.pick(&["", "let x = row.keep(&x);\n"]);
        let mut known = ["columns", "number", "(by as f32)"].map(str::to_owned).to_vec();
        for step in 0..=self.random.below(4) {
            let (source, items, leaves) = self.source(&["x", "w", "m", "out"], &known);
            let [first, second] = [0; 2].map(|_| self.value("f32", 2, &leaves));
            let merge =
                self.random.pick(&["if a > b { a } else { b }", "a * 0.5 + b", "a + b", "a - b * 0.25"]);
            let line = match self.random.below(5) {
                0 => format!("[sA, sB] = [row.sum({source}, move |{items}| {first}), 1.0]"),
                1 => format!("[sA, sB] = row.sums({source}, move |{items}| [{first}, {second}])"),
                2 => format!("[sA, sB] = [row.max({source}, move |{items}| {first}), 2.0]"),
                3 => format!("(sA, sB) = row.argmax({source}, move |{items}| {first}); let sB = sB as f32"),
                _ => format!(
                    "[sA, sB] = row.reduce({source}, [0.0, 1.0], move |[a, c], {items}| {{ let b = {first}; [{merge}, c + {second}] }}, \
                     move |[a, c], [b, d]| [{merge}, c + d])"
                ),
            };
            let names = [format!("s{}", 2 * step), format!("s{}", 2 * step + 1)];
            let _ = writeln!(body, "let {};", line.replace("sA", &names[0]).replace("sB", &names[1]));
            known.extend(names);
            if self.random.below(3) == 0 {
                let (source, items, leaves) = self.source(&["x", "w", "m"], &known);
                let value = self.value("f32", 2, &leaves);
                let _ = writeln!(body, "row.write(&mut out, {source}, move |{items}| {value});");
            }
        }
        let (source, items, mut leaves) = self.source(&["x", "w", "m"], &known);
        leaves.push("old".to_owned());
        let (value, sum) = (self.value("f32", 3, &leaves), self.value(sums, 2, &known));
        let _ = writeln!(
            body,
            "row.change(&mut out, {source}, move |old, {items}| {value});\nrow.set(&mut sums, {sum});\n}}"
        );
        // Of an array with fewer rows: each belongs to the same threads as before.
        let few = "for row in team.rows(&few) { row.change(&mut out, &few, move |x, few| x + few); }\n";
        body + self.random.pick(&["", few])
    }

    /// Some arrays, their items in a closure, and what that can use.
    fn source(&mut self, arrays: &[&str], known: &[String]) -> (String, String, Vec<String>) {
        let arrays: Vec<String> =
            (0..=self.random.below(3)).map(|_| format!("&{}", self.random.pick(arrays))).collect();
        let items: Vec<String> = (0..arrays.len()).map(|at| format!("v{at}")).collect();
        let list = |of: &[String]| if of.len() == 1 { of[0].clone() } else { format!("({})", of.join(", ")) };
        (list(&arrays), list(&items), [&items[..], known].concat())
    }

    /// An element as a number.
    fn read(&self, element: &str, text: &str) -> String {
        let text =
            if element.ends_with("f16") { format!("RowElement::to_f32({text})") } else { text.to_owned() };
        format!("({text} as {})", self.number)
    }

    /// A random expression, as an element.
    fn value(&mut self, element: &str, depth: usize, leaves: &[String]) -> String {
        let value = self.expression(depth, leaves);
        if element.ends_with("f16") {
            format!("<{element} as Real>::from_f32({value} as f32)")
        } else {
            format!("{value} as {element}")
        }
    }

    fn expression(&mut self, depth: usize, leaves: &[String]) -> String {
        let number = self.number;
        if depth == 0 || self.random.below(8) == 0 {
            let constant = self.random.below(100);
            return match self.random.below(5) {
                0 if number.starts_with('f') => format!("({constant} as {number} / 8.0 - 6.0)"),
                0 => format!("({constant} as {number})"),
                _ => self.random.pick(&leaves.iter().collect::<Vec<_>>()).clone(),
            };
        }
        let pattern = self.random.pick(match number {
            "f32" => &[
                "A + B",
                "A - B",
                "A * B",
                "A * B",
                "A / B",
                "if A > B { A } else { B }",
                "math::sqrt(A)",
                "math::floor(A)",
                "math::mul_add(A, B, A)",
                "-A",
                "A.abs()",
            ][..],
            "f64" => &["A + B", "A - B", "A * B", "A / B", "if A < B { A } else { B }", "-A"],
            _ => &[
                "A.wrapping_add(B)",
                "A.wrapping_sub(B)",
                "A.wrapping_mul(B)",
                "A ^ B",
                "A & B",
                "A | B",
                "A.wrapping_shr(B as u32)",
                "A.wrapping_div(B | 1)",
                "A.wrapping_rem(B | 1)",
                "if A > B { A } else { B }",
                "A.rotate_left(7)",
            ],
        });
        let [a, b] = [0; 2].map(|_| self.expression(depth - 1, leaves));
        format!("({})", pattern.replace('A', &a).replace('B', &b))
    }
}

include!("random.rs");
