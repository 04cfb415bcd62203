//! That ARCHITECTURE.md tells the truth about the rooms of the two published packages: each is named, arrows go one way, and
//! unsafe code is where it says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{files, workspace};

const DERIVE: &str = "interop-derive/src ";
const FACTS: &str = "interop-core/src: facts";
const MEMORY: &str = "interop-core/src: memory";
const BORDERS: &str = "interop-core/src: borders";

/// The rooms listed under a heading. What is in a folder is indented further.
fn listed(heading: &str) -> BTreeSet<String> {
    let text = read(&workspace::root().join("ARCHITECTURE.md"));
    let (_, list) = text.split_once(&format!("\n{heading}")).expect("the list has this heading");
    let (list, _) = list.split_once("\n\n").expect("an empty line ends it");
    let lines = list.lines().filter_map(|line| line.strip_prefix("  "));
    named(lines.filter(|line| !line.starts_with(' ')))
}

/// The files listed below a room that is a folder; none where it has no list.
fn listed_in(folder: &str) -> BTreeSet<String> {
    let text = read(&workspace::root().join("ARCHITECTURE.md"));
    let lines = text.lines().skip_while(|line| !line.starts_with(&format!("  {folder}/ "))).skip(1);
    named(lines.take_while(|line| line.starts_with("    ")))
}

/// The files and folders that some lines name, without `.rs` and `/`.
fn named<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let words = lines.flat_map(|line| line.split([' ', ',', '(', ':']));
    let rooms = words.filter_map(|word| word.strip_suffix(".rs").or(word.strip_suffix('/')));
    rooms.filter(|room| !room.contains('/')).map(str::to_owned).collect()
}

/// The rooms that a package has, or the files of one that is a folder.
fn present(folder: &str) -> BTreeSet<String> {
    let files = files::entries(&workspace::root().join(folder)).expect("a folder with sources");
    let names = files.iter().filter_map(|file| file.file_stem());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name != "lib" && name != "mod").collect()
}

fn read(file: &Path) -> String {
    files::read(file).expect("a file of the repository")
}

/// The code of a room of the core, without comments and without the tests at its end.
fn code(room: &str) -> String {
    let place = workspace::root().join("interop-core/src").join(room);
    let files = match fs::read_dir(&place) {
        Ok(entries) => entries.map(|entry| entry.expect("a file").path()).collect(),
        Err(_) => vec![place.with_extension("rs")],
    };
    let text = files.iter().filter(|file| file.is_file()).fold(String::new(), |text, file| {
        let file = read(file);
        text + file.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
    });
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Whether the code names a room of the crate: `use crate::cuda;`, `crate::cuda::order`.
fn reaches(code: &str, room: &str) -> bool {
    let goes_on = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.split(&format!("crate::{room}")).skip(1).any(|rest| !rest.starts_with(goes_on))
}

/// The ways to name a room by which [`reaches`] would miss it: among others in braces, and from the rooms upwards, which is
/// one step from the file of a room or the first of its folder, and two from the others.
fn hidden_ways(room: &str) -> Vec<&'static str> {
    let code = code(room);
    let is_folder = workspace::root().join("interop-core/src").join(room).is_dir();
    let first = if is_folder { self::code(&format!("{room}/mod")) } else { code.clone() };
    let everywhere = ["crate::{", "crate::*", "super::super"].into_iter().filter(|way| code.contains(way));
    everywhere.chain(["super::"].into_iter().filter(|way| first.contains(way))).collect()
}

#[test]
fn every_room_is_named_once() {
    assert_eq!(listed(DERIVE), present("interop-derive/src"));
    let core = [FACTS, MEMORY, BORDERS].map(listed);
    let all: BTreeSet<String> = core.iter().flatten().cloned().collect();
    assert_eq!(all, present("interop-core/src"));
    assert_eq!(core.iter().map(BTreeSet::len).sum::<usize>(), all.len(), "a room is of one kind");
}

#[test]
fn a_folder_that_lists_its_files_lists_all() {
    let folders = present("interop-core/src").into_iter().map(|room| (listed_in(&room), room));
    let listed: Vec<_> = folders.filter(|(files, _)| !files.is_empty()).collect();
    for (files, room) in &listed {
        assert_eq!(*files, present(&format!("interop-core/src/{room}")), "{room}");
    }
    assert_eq!(
        listed.iter().map(|(_, room)| room.as_str()).collect::<Vec<_>>(),
        ["cuda", "dlpack", "python"]
    );
}

#[test]
fn arrows_go_one_way() {
    let [facts, memory, borders] = [FACTS, MEMORY, BORDERS].map(listed);
    for (rooms, others) in [(&facts, &memory | &borders), (&memory, borders)] {
        for room in rooms {
            let code = code(room);
            assert_eq!(
                hidden_ways(room),
                [""; 0],
                "in `{room}`, where a path begins with `crate::` and a room"
            );
            let reached = others.iter().find(|other| reaches(&code, other));
            assert_eq!(reached, None, "used by `{room}`");
        }
    }
    let broken = facts.iter().filter(|room| code(room).contains("unsafe_code"));
    assert_eq!(broken.collect::<Vec<_>>(), ["element", "stream"]);
}

#[test]
fn unsafe_code_is_where_it_is_told() {
    let text = read(&workspace::root().join("ARCHITECTURE.md")).replace('\n', " ");
    let (_, list) = text.split_once("at the top of these rooms only: ").expect("the list has this head");
    let (list, _) = list.split_once(". Each block").expect("this sentence follows");
    let (rooms, safe) = list.split_once(" but for ").expect("`python` is the last");
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let (rooms, safe) = (quoted(rooms), quoted(safe));
    let lifts = |file: &Path| read(file).contains("unsafe_code");
    for room in present("interop-core/src") {
        let place = workspace::root().join("interop-core/src").join(&room);
        if !place.is_dir() {
            assert_eq!(lifts(&place.with_extension("rs")), rooms.contains(&room), "{room}");
        } else if lifts(&place.join("mod.rs")) {
            assert!(rooms.contains(&room), "{room}");
        } else {
            let files = files::entries(&place).expect("a room with files");
            for file in files.iter().filter(|file| file.is_file() && !file.ends_with("mod.rs")) {
                let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let whole = rooms.contains(&room) && !(room == "python" && safe.contains(&name));
                assert_eq!(lifts(file), whole || rooms.contains(&format!("{room}/{name}")), "{room}/{name}");
            }
        }
    }
}
