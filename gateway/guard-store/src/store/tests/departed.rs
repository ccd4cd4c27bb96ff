//! A store that is moved elsewhere: the rows that it exports, and the file that is left.

use super::*;

/// No guard opens a file whose store has moved; a repeated move reads the same rows from it as before.
#[test]
fn moved_file_refuses_guard_keeps_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("guard.redb");
    let departed = StoreMovedMarker { id: "m-1".into(), to: "a database".into() };
    let store = RedbStore::init(&path, &identity(), 5).expect("a new store");
    assert!(matches!(RedbStore::open(&path), Err(StoreError::InUse { .. })), "it is open");
    let id = OperationId::from_bytes([3; 32]);
    store
        .commit(&[
            mark("a", 7),
            StoreMutation::Operation { id, entry: entry(JournalEntryState::Admitted).into() },
        ])
        .expect("written");
    store.commit(&[StoreMutation::AtWork { key: key("a") }, StoreMutation::AtWorkListed]).expect("written");
    store.commit(&[StoreMutation::CleanShutdown(CleanShutdownState::default())]).expect("written");
    let given = |store: &RedbStore| {
        let keys = store.watermarks_after(None, 9).expect("readable");
        let at_work = store.active_keys_after(None, 9).expect("readable");
        (
            store.load_single_values().expect("readable"),
            keys,
            at_work,
            store.operations_after(None, 9).expect("readable"),
        )
    };
    let before = given(&store);
    assert_eq!((before.1.len(), before.2.len(), before.3.len()), (1, 1, 1));
    assert_eq!(before.0.clean_stop, Some(CleanShutdownState::default()), "it was only looked at");
    store.mark_moved(&departed).expect("written");
    drop(store);
    let refused = RedbStore::open(&path).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("FG0545") && refused.contains("a database"), "{refused}");
    let store = RedbStore::open_moved(&path).expect("whoever moves it opens it");
    assert_eq!((store.moved_marker().expect("readable"), given(&store)), (Some(departed), before));
}

/// The rows of a store that moves come in batches without gaps; a key with only a whole watermark is not lost.
#[test]
fn moved_rows_come_in_batches() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = RedbStore::init(&folder.path().join("guard.redb"), &identity(), 5).expect("a new store");
    let names: Vec<String> = (0..25).map(|n| format!("k{n:02}")).collect();
    let marks: Vec<_> = names.iter().map(|name| mark(name, 7)).collect();
    let ids: Vec<_> = (0..25).map(|n| OperationId::from_bytes([n; 32])).collect();
    let operation = |id: &OperationId| StoreMutation::Operation {
        id: *id,
        entry: entry(JournalEntryState::Admitted).into(),
    };
    store.commit(&marks).expect("written");
    store.commit(&ids.iter().map(operation).collect::<Vec<_>>()).expect("written");
    let mut keys = Vec::new();
    let mut operations = Vec::new();
    while let Some(last) = store.watermarks_after(keys.last(), 10).expect("readable").pop().map(|row| row.key)
    {
        keys.extend(
            store.watermarks_after(keys.last(), 10).expect("readable").into_iter().map(|row| row.key),
        );
        assert_eq!(keys.last(), Some(&last));
    }
    loop {
        let batch = store.operations_after(operations.last(), 10).expect("readable");
        if batch.is_empty() {
            break;
        }
        operations.extend(batch.into_iter().map(|(id, _)| id));
    }
    assert_eq!(keys.iter().map(ResourceKey::as_str).collect::<Vec<_>>(), names);
    assert_eq!(operations, ids);
    // A key that only has whole watermarks is not lost.
    let whole = KeyWatermarks { key: key("only"), write: FencingToken::new(9, 1, 1).ok(), read: None };
    store.commit(&[StoreMutation::Watermarks(whole.clone())]).expect("written");
    let only = store.keys_without_epochs().expect("readable");
    assert_eq!(
        only.into_iter().map(|row| (row.key, row.whole)).collect::<Vec<_>>(),
        [(key("only"), Some(whole))]
    );
}
