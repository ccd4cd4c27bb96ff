//! Records, in tests, which fields the reader of a file reads and in which way. The JSON Schemas are made from
//! these records, so they agree with the reader. Outside of tests nothing is recorded.

/// The way in which a field is read.
#[cfg_attr(not(test), expect(dead_code, reason = "read by the tests that make the schemas"))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FieldValueKind {
    /// A single value, read by the function of this name.
    Value(&'static str),
    /// One of these words.
    Word(Vec<String>),
    /// A list of single values, each read by the function of this name.
    Values(&'static str),
    /// A list of mappings, or of values that are read one by one.
    List,
    /// A mapping of known fields.
    Mapping,
    /// A mapping whose names the user chooses.
    Entries,
    /// A mapping from names that the user chooses to single values.
    Texts,
    /// A mapping from names that the user chooses to single values or lists of them.
    TextLists,
}

#[cfg(not(test))]
mod off {
    use crate::file::field_recorder::FieldValueKind;

    pub(in crate::file) struct MappingReadGuard;

    pub(in crate::file) fn within() -> MappingReadGuard {
        MappingReadGuard
    }

    pub(in crate::file) fn inner(_: &'static str) {}

    pub(in crate::file) fn field(_: &'static str) {}

    pub(in crate::file) fn how(_: &'static str, _: impl FnOnce() -> FieldValueKind) {}

    pub(in crate::file) fn required(_: &'static str) {}

    pub(in crate::file) fn one_of(_: &[&'static str]) {}
}

#[cfg(not(test))]
pub(super) use off::*;
#[cfg(test)]
pub(super) use on::*;

#[cfg(test)]
mod on {
    use std::{
        cell::RefCell,
        collections::{BTreeMap, BTreeSet},
        mem,
    };

    use crate::file::field_recorder::FieldValueKind;

    /// The fields that were read in the mappings at one path of the file.
    #[derive(Debug, Default)]
    pub(in crate::file) struct RecordedFields {
        pub(in crate::file) fields: BTreeMap<&'static str, BTreeSet<FieldValueKind>>,
        pub(in crate::file) required: BTreeMap<&'static str, usize>,
        pub(in crate::file) one_of: Option<Vec<&'static str>>,
        /// The number of mappings that were read at this path.
        pub(in crate::file) reads: usize,
    }

    #[derive(Default)]
    struct PolicyFieldRecorder {
        /// The records by path. `*` in a path stands for a name that the user chooses, and for every item of a
        /// list.
        asked: BTreeMap<String, RecordedFields>,
        /// The mappings that are being read, outermost first.
        open: Vec<OpenMapping>,
    }

    struct OpenMapping {
        path: String,
        /// The path of the mapping that is read next.
        next: String,
        required: BTreeSet<&'static str>,
    }

    thread_local! {
        static NOTES: RefCell<PolicyFieldRecorder> = RefCell::default();
    }

    /// Removes and returns all records of this thread.
    pub(in crate::file) fn take_records() -> BTreeMap<String, RecordedFields> {
        NOTES.with_borrow_mut(|records| mem::take(&mut records.asked))
    }

    /// Marks one mapping as being read, until it is dropped.
    pub(in crate::file) struct MappingReadGuard;

    pub(in crate::file) fn within() -> MappingReadGuard {
        NOTES.with_borrow_mut(|records| {
            let path = records.open.last().map(|open| open.next.clone()).unwrap_or_default();
            records.asked.entry(path.clone()).or_default().reads += 1;
            records.open.push(OpenMapping { next: path.clone(), path, required: BTreeSet::new() });
        });
        MappingReadGuard
    }

    impl Drop for MappingReadGuard {
        fn drop(&mut self) {
            NOTES.with_borrow_mut(|records| {
                let open = records.open.pop().expect("opened before");
                let record = records.asked.entry(open.path).or_default();
                for name in open.required {
                    *record.required.entry(name).or_default() += 1;
                }
            });
        }
    }

    fn with_open_mapping(note: impl FnOnce(&mut OpenMapping, &mut RecordedFields)) {
        NOTES.with_borrow_mut(|records| {
            // A test that reads a block by itself has opened no mapping, so nothing is recorded.
            let Some(open) = records.open.last_mut() else { return };
            let record = records.asked.entry(open.path.clone()).or_default();
            note(open, record);
        });
    }

    pub(in crate::file) fn inner(name: &'static str) {
        how(name, || FieldValueKind::Mapping);
        with_open_mapping(|open, _| open.next = format!("{}/{name}", open.path));
    }

    pub(in crate::file) fn field(name: &'static str) {
        with_open_mapping(|_, record| {
            record.fields.entry(name).or_default();
        });
    }

    pub(in crate::file) fn how(name: &'static str, how: impl FnOnce() -> FieldValueKind) {
        let how = how();
        with_open_mapping(|open, record| {
            if matches!(how, FieldValueKind::List | FieldValueKind::Entries) {
                open.next = format!("{}/{name}/*", open.path);
            }
            record.fields.entry(name).or_default().insert(how);
        });
    }

    pub(in crate::file) fn required(name: &'static str) {
        with_open_mapping(|open, _| {
            open.required.insert(name);
        });
    }

    pub(in crate::file) fn one_of(names: &[&'static str]) {
        with_open_mapping(|_, record| record.one_of = Some(names.to_vec()));
    }
}
