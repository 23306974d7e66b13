//! Claims on files and names.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use sakia_io::{Arena, BLOCK, BlockLease, ChunkWriter, Class, File, OpenOptions, fs, sleep, spawn};

use crate::ground::Ground;

const NEW: OpenOptions = OpenOptions { create: true, direct: true, write: true };
const READ: OpenOptions = OpenOptions { create: false, direct: true, write: false };

fn pattern(len: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn chunk_of(bytes: &[u8]) -> ChunkWriter {
    let mut writer = Arena::new(64 << 20).chunk(bytes.len().next_multiple_of(BLOCK)).unwrap();
    writer.append(bytes).unwrap();
    writer
}

fn blocks_of(bytes: &[u8]) -> BlockLease {
    chunk_of(bytes).blocks(0..bytes.len())
}

/// Polls once, so that the operation is begun.
async fn begin<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut future = Some(future);
    std::future::poll_fn(move |cx| match future.take().unwrap().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn written(path: &Path, bytes: &[u8]) -> File {
    let file = File::open(path, NEW).await.unwrap();
    file.write_range(blocks_of(bytes), 0).await.unwrap();
    file
}

pub async fn a_file_reads_back_what_was_written(ground: Ground) {
    for (len, direct) in [(1, true), (BLOCK, true), (3 << 20, true), (100_000, false)] {
        let path = ground.folder.join(format!("file-{len}"));
        let bytes = pattern(len, 1);
        let file = File::open(&path, OpenOptions { direct, ..NEW }).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 0);
        file.write_range(blocks_of(&bytes), 0).await.unwrap();
        file.sync().await.unwrap();
        let padded = len.next_multiple_of(BLOCK);
        assert_eq!(file.size().await.unwrap(), u64::try_from(padded).unwrap());
        let read = file.read(0, padded).await.unwrap();
        assert!(read[..len] == bytes[..] && read[len..].iter().all(|byte| *byte == 0), "padded with zeros");
        file.close().await.unwrap();
        let again = File::open(&path, READ).await.unwrap();
        assert!(again.read(0, len).await.unwrap() == bytes[..]);
    }
}

pub async fn a_read_is_clamped_to_the_end_of_the_file(ground: Ground) {
    let bytes = pattern(3 * BLOCK, 2);
    let file = written(&ground.folder.join("file"), &bytes).await;
    file.truncate(10_000).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 10_000);
    assert!(file.read(0, 1 << 20).await.unwrap() == bytes[..10_000]);
    assert!(file.read(9_990, 4_096).await.unwrap() == bytes[9_990..10_000]);
    assert!(file.read(10_000, 10).await.unwrap().is_empty());
    assert!(file.read(1 << 30, 10).await.unwrap().is_empty());
    assert!(file.read(5, 0).await.unwrap().is_empty());
}

pub async fn a_read_of_any_position_and_length_is_exact(ground: Ground) {
    let bytes = pattern(40 * BLOCK, 3);
    let file = written(&ground.folder.join("file"), &bytes).await;
    let mut state = 5_u64;
    for _ in 0..300 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let position = usize::try_from(state >> 33).unwrap() % bytes.len();
        let len = usize::try_from((state >> 7) % 20_000).unwrap();
        let end = bytes.len().min(position + len);
        let read = file.read(u64::try_from(position).unwrap(), len).await.unwrap();
        assert!(read == bytes[position..end], "{len} bytes at {position}");
    }
}

pub async fn truncation_cuts_and_extends_with_zeros(ground: Ground) {
    let bytes = pattern(2 * BLOCK, 4);
    let file = written(&ground.folder.join("file"), &bytes).await;
    file.truncate(100).await.unwrap();
    file.truncate(5_000).await.unwrap();
    let mut expected = bytes[..100].to_vec();
    expected.resize(5_000, 0);
    assert!(file.read(0, 10_000).await.unwrap() == expected[..]);
    file.truncate(0).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 0);
    file.write_range(blocks_of(&bytes), 0).await.unwrap();
    assert!(file.read(0, 10_000).await.unwrap() == bytes[..]);
}

pub async fn allocation_leaves_the_size(ground: Ground) {
    let file = written(&ground.folder.join("file"), &[1; BLOCK]).await;
    file.allocate(1 << 20).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 4096);
    file.write_range(blocks_of(&[2; 2 * BLOCK]), 8192).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 16_384);
    let read = file.read(0, 1 << 20).await.unwrap();
    assert_eq!((read[4095], read[4096], read[8191], read[8192]), (1, 0, 0, 2));
}

pub async fn the_tail_in_place_is_rewritten_while_it_grows(ground: Ground) {
    let file = File::open(&ground.folder.join("segment"), NEW).await.unwrap();
    let mut writer = Arena::new(1 << 20).chunk(1 << 20).unwrap();
    let expected = pattern(900_000, 6);
    let (mut appended, mut stored, mut round) = (0, 0, 0_usize);
    let mut grown_in_flight = 0;
    let mut append = |writer: &mut ChunkWriter, appended: &mut usize| {
        round += 1;
        let len = (1 + round * 7919 % 6000).min(expected.len() - *appended);
        writer.append(&expected[*appended..*appended + len]).unwrap();
        *appended += len;
        len
    };
    while stored < expected.len() {
        append(&mut writer, &mut appended);
        let (from, to) = (stored, appended);
        if from == to {
            continue;
        }
        let blocks = writer.blocks(from..to);
        let position = u64::try_from(blocks.start()).unwrap();
        let mut write = pin!(file.write_range(blocks, position));
        // The device has the last block while it grows.
        if begin(write.as_mut()).await.is_none() {
            grown_in_flight += append(&mut writer, &mut appended);
            write.await.unwrap();
        }
        stored = to;
        let read = file.read(u64::try_from(from).unwrap(), to - from).await.unwrap();
        assert!(read == expected[from..to], "what was appended before the write is stored");
    }
    assert!(grown_in_flight > 0, "some bytes were appended while a write was in flight");
    file.sync().await.unwrap();
    assert!(file.read(0, expected.len()).await.unwrap() == expected[..]);
    assert!(writer.lease(0..expected.len()) == expected[..]);
    assert!(!writer.is_shared(), "no write holds the chunk any more");
}

pub async fn writes_apart_may_be_in_flight_together(ground: Ground) {
    let file = File::open(&ground.folder.join("file"), NEW).await.unwrap();
    let bytes = pattern(64 * BLOCK, 7);
    let writer = chunk_of(&bytes);
    let mut tasks = Vec::new();
    for part in (0..64).rev() {
        let blocks = writer.blocks(part * BLOCK..(part + 1) * BLOCK);
        let file = file.clone();
        let position = u64::try_from(part * BLOCK).unwrap();
        tasks.push(spawn(Class::Foreground, async move { file.write_range(blocks, position).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(file.read(0, bytes.len()).await.unwrap() == bytes[..]);
}

pub async fn a_dropped_write_holds_its_memory_and_its_blocks(ground: Ground) {
    let file = File::open(&ground.folder.join("file"), NEW).await.unwrap();
    let writer = chunk_of(&[9; 4 * BLOCK]);
    {
        let mut write = pin!(file.write_range(writer.blocks(0..4 * BLOCK), 0));
        assert!(begin(write.as_mut()).await.is_none(), "a write takes a while");
    }
    assert!(writer.is_shared(), "the write keeps its memory until its completion");
    // A write elsewhere is free to go on, and its memory comes back in the end.
    file.write_range(writer.blocks(0..BLOCK), 1 << 20).await.unwrap();
    while writer.is_shared() {
        sleep(Duration::from_millis(1)).await;
    }
    file.write_range(writer.blocks(0..4 * BLOCK), 0).await.unwrap();
    assert!(file.read(0, 4 * BLOCK).await.unwrap() == [9; 4 * BLOCK][..]);
}

pub async fn a_write_over_blocks_in_flight_is_refused(ground: Ground) {
    let file = File::open(&ground.folder.join("file"), NEW).await.unwrap();
    let writer = chunk_of(&[9; 4 * BLOCK]);
    let overlaps = |first: usize, count: usize| {
        let (file, blocks) = (file.clone(), writer.blocks(0..count * BLOCK));
        let position = u64::try_from(first * BLOCK).unwrap();
        let mut write = Box::pin(async move { file.write_range(blocks, position).await });
        let mut waiting = std::task::Context::from_waker(std::task::Waker::noop());
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(write.as_mut().poll(&mut waiting)))).is_err()
    };
    {
        let mut write = pin!(file.write_range(writer.blocks(0..2 * BLOCK), 40_960));
        assert!(begin(write.as_mut()).await.is_none(), "a write takes a while");
        assert!(overlaps(9, 2) && overlaps(11, 1) && overlaps(9, 4));
        assert!(!overlaps(9, 1) && !overlaps(12, 1), "neighbours are free");
    }
    assert!(overlaps(11, 1), "a dropped write is in flight until its completion");
    while writer.is_shared() {
        sleep(Duration::from_millis(1)).await;
    }
    file.write_range(writer.blocks(0..4 * BLOCK), 40_960).await.unwrap();
}

pub async fn a_dropped_read_gives_its_memory_back(ground: Ground) {
    let bytes = pattern(BLOCK, 8);
    let file = written(&ground.folder.join("file"), &bytes).await;
    for _ in 0..100 {
        {
            let mut read = pin!(file.read(0, BLOCK));
            begin(read.as_mut()).await;
        }
        assert!(file.read(0, BLOCK).await.unwrap() == bytes[..]);
    }
    file.close().await.unwrap();
}

pub async fn open_without_create_wants_an_existing_file(ground: Ground) {
    let path = ground.folder.join("file");
    assert_eq!(File::open(&path, READ).await.err().unwrap().kind(), io::ErrorKind::NotFound);
    drop(written(&path, b"x").await);
    File::open(&path, READ).await.unwrap();
    // Create opens what is there, with its content.
    let file = File::open(&path, NEW).await.unwrap();
    assert!(file.read(0, 1).await.unwrap() == b"x"[..]);
}

pub async fn a_closed_file_can_be_opened_again(ground: Ground) {
    let path = ground.folder.join("file");
    for round in 0..50_u8 {
        let file = File::open(&path, NEW).await.unwrap();
        file.write_range(blocks_of(&[round; 10]), 0).await.unwrap();
        if round % 2 == 0 {
            file.close().await.unwrap();
        }
    }
    assert!(File::open(&path, READ).await.unwrap().read(0, 10).await.unwrap() == [49; 10][..]);
}

pub async fn names_are_listed_renamed_and_removed(ground: Ground) {
    let folder = ground.folder.join("a").join("b");
    fs::create_dir_all(&folder).await.unwrap();
    fs::create_dir_all(&folder).await.unwrap();
    for name in ["zz", "10", "9"] {
        written(&folder.join(name), b"content").await.close().await.unwrap();
    }
    fs::create_dir_all(&folder.join("c")).await.unwrap();
    fs::sync_dir(&folder).await.unwrap();
    let names = |entries: Vec<fs::DirEntry>| entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    let entries = fs::list_dir(&folder).await.unwrap();
    assert_eq!((entries[1].is_dir, entries[1].len, entries[2].is_dir, entries[2].len), (false, 4096, true, 0));
    assert_eq!(names(entries), ["10", "9", "c", "zz"]);
    fs::rename(&folder.join("zz"), &folder.join("9")).await.unwrap();
    fs::remove_file(&folder.join("10")).await.unwrap();
    assert_eq!(names(fs::list_dir(&folder).await.unwrap()), ["9", "c"]);
    assert!(fs::exists(&folder.join("9")).await.unwrap());
    assert!(!fs::exists(&folder.join("10")).await.unwrap());
    fs::remove_dir_all(&ground.folder.join("a")).await.unwrap();
    assert!(!fs::exists(&folder).await.unwrap());
    assert_eq!(fs::list_dir(&folder).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(fs::remove_file(&folder.join("9")).await.unwrap_err().kind(), io::ErrorKind::NotFound);
}

pub async fn a_replaced_file_is_whole(ground: Ground) {
    let path = ground.folder.join("checkpoint");
    assert_eq!(fs::read_file(&path).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    for len in [10_000, 3, 0] {
        let content = pattern(len, 9);
        fs::replace_file(&path, content.clone()).await.unwrap();
        assert!(fs::read_file(&path).await.unwrap() == content);
    }
    let entries = fs::list_dir(&ground.folder).await.unwrap();
    assert_eq!(entries.len(), 1, "the temporary file is gone");
}

pub async fn a_folder_is_locked_once(ground: Ground) {
    let lock = fs::lock(&ground.folder).await.unwrap();
    assert_eq!(fs::lock(&ground.folder).await.err().unwrap().kind(), io::ErrorKind::WouldBlock);
    drop(lock);
    // The lock is given back in the background.
    let mut again = fs::lock(&ground.folder).await;
    while again.is_err() {
        sleep(Duration::from_millis(1)).await;
        again = fs::lock(&ground.folder).await;
    }
}
