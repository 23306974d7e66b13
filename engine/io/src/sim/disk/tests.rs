//! Claims about names: what a kill keeps, what a power loss takes, what a folder's sync saves.

use super::*;

fn open(disk: &mut Disk, path: &str) -> Node {
    disk.open(Path::new(path), Absent::Create).unwrap()
}

fn sync(disk: &mut Disk, node: Node) -> io::Result<()> {
    let mark = disk.begin_sync(node);
    disk.end_sync(node, mark)
}

fn names(disk: &Disk, path: &str) -> Vec<String> {
    disk.list(Path::new(path)).unwrap().into_iter().map(|entry| entry.name).collect()
}

fn with_folder() -> Disk {
    let mut disk = Disk::new();
    disk.create_dir_all(Path::new("/data/log")).unwrap();
    for folder in ["/", "/data"] {
        let node = disk.find(Path::new(folder)).unwrap();
        sync(&mut disk, node).unwrap();
    }
    disk
}

#[test]
fn a_kill_keeps_unsynced_names_and_bytes_and_frees_locks() {
    let mut disk = with_folder();
    let file = open(&mut disk, "/data/log/0");
    disk.write(file, 0, b"bytes", &mut Random::seeded(1)).unwrap();
    assert!(disk.lock(file));
    disk.rename(Path::new("/data/log/0"), Path::new("/data/log/1")).unwrap();
    disk.kill();
    assert_eq!(names(&disk, "/data/log"), ["1"]);
    let again = open(&mut disk, "/data/log/1");
    let mut bytes = [0; 10];
    assert_eq!(disk.read(again, 0, &mut bytes).unwrap(), 5);
    assert_eq!(&bytes[..5], b"bytes");
    assert!(disk.lock(again));
}

#[test]
fn a_power_loss_may_take_a_new_name_unless_its_folder_was_synced() {
    let survives = |sync_folder: bool, seed: u64| {
        let mut disk = with_folder();
        let file = open(&mut disk, "/data/log/0");
        sync(&mut disk, file).unwrap();
        if sync_folder {
            let folder = disk.find(Path::new("/data/log")).unwrap();
            sync(&mut disk, folder).unwrap();
        }
        disk.lose_power(&mut Random::seeded(seed));
        !names(&disk, "/data/log").is_empty()
    };
    assert!((0..20).all(|seed| survives(true, seed)));
    assert!((0..20).any(|seed| survives(false, seed)) && (0..20).any(|seed| !survives(false, seed)));
}

#[test]
fn a_power_loss_leaves_the_old_file_or_the_new_one_under_a_replaced_name() {
    let mut seen = BTreeSet::new();
    for seed in 0..30 {
        let mut disk = with_folder();
        let mut random = Random::seeded(seed);
        let folder = disk.find(Path::new("/data/log")).unwrap();
        for (name, bytes) in [("/data/log/state", b"old"), ("/data/log/new", b"new")] {
            let file = open(&mut disk, name);
            disk.write(file, 0, bytes, &mut random).unwrap();
            sync(&mut disk, file).unwrap();
            sync(&mut disk, folder).unwrap();
        }
        disk.rename(Path::new("/data/log/new"), Path::new("/data/log/state")).unwrap();
        disk.lose_power(&mut random);
        let file = open(&mut disk, "/data/log/state");
        let mut bytes = [0; 3];
        disk.read(file, 0, &mut bytes).unwrap();
        assert_eq!(names(&disk, "/data/log").len(), if &bytes == b"old" { 2 } else { 1 });
        seen.insert(bytes);
    }
    assert_eq!(seen, BTreeSet::from([*b"old", *b"new"]));
}

#[test]
fn a_removed_file_stays_readable_through_its_open_handle_and_is_freed_afterwards() {
    let mut disk = with_folder();
    let file = open(&mut disk, "/data/log/0");
    disk.write(file, 0, b"bytes", &mut Random::seeded(1)).unwrap();
    disk.remove_file(Path::new("/data/log/0")).unwrap();
    let folder = disk.find(Path::new("/data/log")).unwrap();
    sync(&mut disk, folder).unwrap();
    disk.sweep();
    assert_eq!(disk.read(file, 0, &mut [0; 5]).unwrap(), 5);
    disk.close(file);
    disk.sweep();
    assert!(disk.files.is_empty());
}

#[test]
fn names_fail_as_those_of_a_real_disk_do() {
    let mut disk = with_folder();
    let code = |result: io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
    assert_eq!(code(disk.open(Path::new("/data/log/0"), Absent::Refuse).map(drop)), libc::ENOENT);
    assert_eq!(code(disk.open(Path::new("/no/0"), Absent::Create).map(drop)), libc::ENOENT);
    open(&mut disk, "/data/log/0");
    assert_eq!(code(disk.create_dir(Path::new("/data/log"))), libc::EEXIST);
    disk.create_dir(Path::new("/data/empty")).unwrap();
    assert_eq!(code(disk.rename(Path::new("/data/empty"), Path::new("/data/log"))), libc::ENOTEMPTY);
    assert_eq!(code(disk.rename(Path::new("/data"), Path::new("/data/log/data"))), libc::EINVAL);
    disk.rename(Path::new("/data/log"), Path::new("/data/empty")).unwrap();
    disk.rename(Path::new("/data/empty"), Path::new("/data/log")).unwrap();
    assert_eq!(code(disk.remove_file(Path::new("/data/log"))), libc::EISDIR);
    assert_eq!(code(disk.list(Path::new("/data/log/0")).map(drop)), libc::ENOTDIR);
    disk.remove_dir_all(Path::new("/data/log")).unwrap();
    assert!(names(&disk, "/data").is_empty());
}

#[test]
fn only_writes_on_the_chosen_path_fail_and_only_so_many() {
    let mut disk = with_folder();
    let mut random = Random::seeded(1);
    let (log, other) = (open(&mut disk, "/data/log/0"), open(&mut disk, "/data/other"));
    disk.failing_writes = Some(Failing::next().on("log/").with(libc::ENOSPC));
    disk.write(other, 0, b"x", &mut random).unwrap();
    assert_eq!(disk.write(log, 0, b"x", &mut random).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    disk.write(log, 0, b"x", &mut random).unwrap();
    disk.failing_syncs = Some(Failing::next());
    assert!(sync(&mut disk, log).is_err());
    assert!(sync(&mut disk, log).is_ok());
}
