//! Claims about what crashes, power losses, failing disks and cut links do to shards of a world.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sakia_io::sim::{Crash, Failing, Machine, World};
use sakia_io::{Arena, BLOCK, BlockLease, Class, File, Listener, OpenOptions, Stream, fs, sleep, spawn, timeout};

const MINUTE: Duration = Duration::from_secs(60);
const WRITING: OpenOptions = OpenOptions { create: true, write: true, direct: true };

fn log_path() -> &'static Path {
    Path::new("/data/log")
}

thread_local! {
    static ARENA: Arena = Arena::new(16 << 20);
}

/// Blocks filled with one byte.
fn blocks(count: usize, byte: u8) -> BlockLease {
    let mut chunk = ARENA.with(|arena| arena.chunk(count * BLOCK)).unwrap();
    let range = chunk.append(&vec![byte; count * BLOCK]).unwrap();
    chunk.blocks(range)
}

/// A file of `count` blocks of ones, durable with its name.
async fn durable_log(count: usize) -> File {
    fs::create_dir_all("/data".as_ref()).await.unwrap();
    let file = File::open(log_path(), WRITING).await.unwrap();
    file.write_range(blocks(count, 1), 0).await.unwrap();
    file.sync().await.unwrap();
    fs::sync_dir("/data".as_ref()).await.unwrap();
    fs::sync_dir("/".as_ref()).await.unwrap();
    file
}

/// What each block of the log holds: its only byte.
fn block_bytes(machine: &Machine) -> Vec<u8> {
    let content = machine.disk().content(log_path()).unwrap();
    let byte_of = |block: &[u8]| {
        assert!(block.iter().all(|byte| *byte == block[0]), "no block is torn inside");
        block[0]
    };
    content.chunks(BLOCK).map(byte_of).collect()
}

#[test]
fn a_kill_keeps_completed_writes_and_leaves_any_part_of_the_one_in_flight() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let world = World::new(seed);
        let machine = world.machine("broker");
        machine.disk().slow(Duration::from_secs(1));
        let client = world.spawn_client(&machine, async {
            let file = durable_log(1).await;
            file.write_range(blocks(1, 2), 0).await.unwrap();
            file.write_range(blocks(3, 3), 4096).await.unwrap();
        });
        // Folder, file, three syncs and two writes take a second each; the last write is in flight.
        world.run_for(Duration::from_millis(7500));
        assert!(!client.is_done());
        machine.crash(Crash::Kill);
        let found = block_bytes(&machine);
        assert_eq!(found[0], 2, "seed {seed}");
        seen.insert(found[1..].to_vec());
    }
    assert!(seen.contains(&vec![]) && seen.contains(&vec![3, 3, 3]) && seen.contains(&vec![3]), "{seen:?}");
    assert!(seen.iter().any(|blocks| blocks.contains(&0)), "holes before later blocks: {seen:?}");
}

#[test]
fn a_power_loss_drops_unsynced_writes_by_chance_and_never_synced_ones() {
    let mut lost = 0;
    for seed in 0..60 {
        let world = World::new(seed);
        let machine = world.machine("broker");
        let write = async {
            let file = durable_log(2).await;
            file.write_range(blocks(1, 2), 0).await.unwrap();
            file.sync().await.unwrap();
            file.write_range(blocks(1, 3), 4096).await.unwrap();
            file.write_range(blocks(1, 4), 8192).await.unwrap();
        };
        world.block_on(&machine, MINUTE, write).unwrap();
        machine.crash(Crash::PowerLoss);
        let content = machine.disk().content(log_path()).unwrap();
        assert!(content[..BLOCK].iter().all(|byte| *byte == 2), "seed {seed}");
        assert!(content[BLOCK..2 * BLOCK].iter().all(|byte| *byte == 1 || *byte == 3), "seed {seed}");
        lost += usize::from(content[BLOCK] == 1) + usize::from(content.len() < 3 * BLOCK);
    }
    assert!((30..90).contains(&lost), "{lost} of 120 lost");
}

#[test]
fn a_power_loss_may_forget_a_file_whose_folder_was_not_synced_but_not_one_that_was_replaced() {
    let mut forgotten = 0;
    for seed in 0..30 {
        let world = World::new(seed);
        let machine = world.machine("broker");
        let write = async {
            durable_log(1).await;
            fs::replace_file("/data/state".as_ref(), b"kept".to_vec()).await.unwrap();
            File::open("/data/new".as_ref(), WRITING).await.unwrap().sync().await.unwrap();
        };
        world.block_on(&machine, MINUTE, write).unwrap();
        machine.crash(Crash::PowerLoss);
        assert_eq!(machine.disk().content("/data/state").unwrap(), b"kept");
        forgotten += usize::from(machine.disk().content("/data/new").is_err());
    }
    assert!((5..25).contains(&forgotten), "{forgotten} of 30");
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one_whenever_the_crash_comes() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let world = World::new(seed);
        let machine = world.machine("broker");
        let client = world.spawn_client(&machine, async {
            durable_log(1).await;
            fs::replace_file("/data/state".as_ref(), b"old".to_vec()).await.unwrap();
            fs::replace_file("/data/state".as_ref(), vec![9; 10_000]).await.unwrap();
        });
        while machine.disk().content("/data/state").is_err() {
            world.run_for(Duration::from_micros(10));
        }
        let pause = world.random().within(0..1500);
        world.run_for(Duration::from_micros(pause));
        let crash = if seed % 2 == 0 { Crash::Kill } else { Crash::PowerLoss };
        machine.crash(crash);
        let content = machine.disk().content("/data/state").unwrap();
        assert!(content == b"old" || content == vec![9; 10_000], "seed {seed}");
        assert!(!client.is_done() || content.len() == 10_000, "seed {seed}");
        seen.insert(content.len());
    }
    assert_eq!(seen, BTreeSet::from([3, 10_000]));
}

#[test]
fn restarted_shards_find_the_disk_of_their_machine_and_a_free_lock() {
    let world = World::new(1);
    let machine = world.machine("broker");
    let holding = async {
        drop(durable_log(1).await);
        let lock = fs::lock("/data".as_ref()).await.unwrap();
        let second = fs::lock("/data".as_ref()).await;
        assert_eq!(second.err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        std::future::pending::<()>().await;
        drop(lock);
    };
    let client = world.spawn_client(&machine, holding);
    world.run_for(Duration::from_secs(1));
    machine.crash(Crash::Kill);
    machine.up();
    let reading = async {
        fs::lock("/data".as_ref()).await.unwrap();
        let file = File::open(log_path(), OpenOptions::default()).await.unwrap();
        (file.size().await.unwrap(), file.read(100, 5000).await.unwrap())
    };
    let (size, bytes) = world.block_on(&machine, MINUTE, reading).unwrap();
    assert_eq!((size, bytes), (4096, Bytes::from(vec![1; 3996])));
    assert!(!client.is_done());
}

#[test]
fn failed_writes_and_syncs_are_reported_and_other_files_go_on() {
    let world = World::new(2);
    let machine = world.machine("broker");
    let file = async {
        let file = durable_log(1).await;
        let other = File::open("/data/other".as_ref(), WRITING).await.unwrap();
        (file, other)
    };
    let disk = machine.disk();
    let failing = async move {
        let (file, other) = file.await;
        disk.fail_writes(Failing::all().on("log").with(libc::ENOSPC));
        disk.fail_syncs(Failing::next());
        let write = file.write_range(blocks(1, 2), 0).await.unwrap_err();
        let sync = other.sync().await.unwrap_err();
        other.write_range(blocks(1, 2), 0).await.unwrap();
        other.sync().await.unwrap();
        disk.heal();
        file.write_range(blocks(1, 2), 0).await.unwrap();
        (write.kind(), sync.raw_os_error())
    };
    let errors = world.block_on(&machine, MINUTE, failing).unwrap();
    assert_eq!(errors, (io::ErrorKind::StorageFull, Some(libc::EIO)));
}

async fn echo_once(port: u16) {
    let listener = Listener::bind(SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        spawn(Class::Foreground, async move {
            loop {
                let (received, buffer) = stream.recv(BytesMut::with_capacity(64)).await;
                if !received.is_ok_and(|len| len > 0) || stream.send(buffer.freeze()).await.is_err() {
                    return;
                }
            }
        })
        .detach();
    }
}

async fn ask(stream: &Stream, word: &'static [u8]) -> io::Result<()> {
    stream.send(Bytes::from_static(word)).await?;
    let mut answer = BytesMut::new();
    while answer.len() < word.len() {
        answer.reserve(64);
        let (received, filled) = stream.recv(answer).await;
        answer = filled;
        if received? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    assert_eq!(answer, word);
    Ok(())
}

#[test]
fn a_cut_link_holds_a_request_until_it_is_healed_and_breaks_it_when_it_stays_cut() {
    let world = World::new(3);
    let (client, server) = (world.machine("client"), world.machine("server"));
    let serving = world.spawn_client(&server, echo_once(9092));
    let asked = world.spawn_client(&client, async {
        sleep(Duration::from_millis(10)).await;
        let stream = Stream::connect("server", 9092).await.unwrap();
        ask(&stream, b"before").await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let held = ask(&stream, b"held").await;
        sleep(Duration::from_secs(1)).await;
        (held, ask(&stream, b"lost").await)
    });
    world.run_for(Duration::from_millis(500));
    world.network().cut_one_way(&client, &server);
    world.run_for(Duration::from_secs(3));
    world.network().heal(&client, &server);
    world.run_for(Duration::from_millis(100));
    world.network().cut(&client, &server);
    assert!(!asked.is_done());
    world.run_until(Duration::from_secs(70), |_| asked.is_done()).unwrap();
    let (held, lost) = asked.take().unwrap();
    held.unwrap();
    assert_eq!(lost.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(!serving.is_done());
}

#[test]
fn a_crash_breaks_the_connections_of_a_machine_and_a_restart_accepts_new_ones() {
    for (seed, crash) in [(4, Crash::Kill), (5, Crash::PowerLoss)] {
        let world = World::new(seed);
        let (client, server) = (world.machine("client"), world.machine("server"));
        let serving = world.spawn_client(&server, echo_once(9092));
        let asked = world.spawn_client(&client, async {
            sleep(Duration::from_millis(10)).await;
            let stream = Stream::connect("10.0.0.2", 9092).await.unwrap();
            ask(&stream, b"one").await.unwrap();
            let idle = stream.recv(BytesMut::with_capacity(10)).await.0;
            let refused = Stream::connect("server", 9092).await;
            (idle, refused.map(drop))
        });
        world.run_for(Duration::from_secs(1));
        server.crash(crash);
        world.run_until(MINUTE * 3, |_| asked.is_done()).unwrap();
        let (idle, refused) = asked.take().unwrap();
        assert!(!idle.is_ok_and(|len| len > 0));
        let expected = if crash == Crash::Kill { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::TimedOut };
        assert_eq!(refused.unwrap_err().kind(), expected);
        server.up();
        let again = world.spawn_client(&server, echo_once(9092));
        let stream = async {
            sleep(Duration::from_millis(10)).await;
            ask(&Stream::connect("server", 9092).await.unwrap(), b"two").await
        };
        world.block_on(&client, MINUTE, stream).unwrap().unwrap();
        assert!(!serving.is_done() && !again.is_done());
    }
}

#[test]
fn a_cancelled_receive_loses_no_bytes_and_a_delay_slows_only_its_link() {
    let world = World::new(6);
    let (client, server, near) = (world.machine("client"), world.machine("server"), world.machine("near"));
    world.network().delay(&client, &server, Duration::from_millis(100)..Duration::from_millis(101));
    let serving = world.spawn_client(&server, echo_once(9092));
    let serving_near = world.spawn_client(&near, echo_once(9092));
    let asked = world.block_on(&client, MINUTE, async {
        sleep(Duration::from_millis(10)).await;
        let far = Stream::connect("server", 9092).await.unwrap();
        let near = Stream::connect("near", 9092).await.unwrap();
        timeout(Duration::from_millis(10), ask(&near, b"near")).await.unwrap().unwrap();
        far.send(Bytes::from_static(b"far")).await.unwrap();
        let early = timeout(Duration::from_millis(50), far.recv(BytesMut::with_capacity(10))).await;
        assert!(early.is_err());
        let mut answer = BytesMut::with_capacity(10);
        while answer.len() < 3 {
            let (received, filled) = far.recv(answer).await;
            answer = filled;
            received.unwrap();
        }
        answer
    });
    assert_eq!(asked.unwrap(), b"far"[..]);
    assert!(!serving.is_done() && !serving_near.is_done());
}

#[test]
fn a_kill_in_the_middle_of_a_removal_leaves_any_part_of_the_folder() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let world = World::new(seed);
        let machine = world.machine("broker");
        let fill = async {
            drop(durable_log(1).await);
            for name in ["/data/1", "/data/2"] {
                File::open(name.as_ref(), WRITING).await.unwrap();
            }
        };
        world.block_on(&machine, MINUTE, fill).unwrap();
        let removing = world.spawn_client(&machine, async { fs::remove_dir_all("/data".as_ref()).await });
        world.run_for(Duration::from_micros(15));
        machine.crash(Crash::Kill);
        assert!(!removing.is_done());
        seen.insert(machine.disk().names("/data").map_or(0, |names| names.len() + 1));
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3, 4]));
}

#[test]
fn damaged_bytes_are_what_the_next_read_gives() {
    let world = World::new(7);
    let machine = world.machine("broker");
    world.block_on(&machine, MINUTE, async { drop(durable_log(1).await) }).unwrap();
    machine.disk().damage(log_path(), 100, &[0xff]).unwrap();
    let reading = async { File::open(log_path(), OpenOptions::default()).await.unwrap().read(99, 3).await.unwrap() };
    assert_eq!(world.block_on(&machine, MINUTE, reading).unwrap(), [1, 0xff, 1][..]);
}

/// Echo servers, and a log that each machine extends block by block and checks after each restart.
fn start_machine(world: &World, machine: &Machine) {
    drop(world.spawn_client(machine, echo_once(9092)));
    drop(world.spawn_client(machine, async {
        fs::create_dir_all("/data".as_ref()).await.unwrap();
        let file = File::open(log_path(), WRITING).await.unwrap();
        file.sync().await.unwrap();
        fs::sync_dir("/data".as_ref()).await.unwrap();
        fs::sync_dir("/".as_ref()).await.unwrap();
        let synced = match fs::read_file("/data/synced".as_ref()).await {
            Ok(content) => u64::from_le_bytes(content.try_into().unwrap()),
            Err(_) => 0,
        };
        for block in 0..synced {
            let bytes = file.read(block * 4096, BLOCK).await.unwrap();
            assert_eq!(bytes, vec![u8::try_from(block % 251).unwrap(); BLOCK], "block {block} of {synced} synced");
        }
        for block in synced.. {
            file.write_range(blocks(1, u8::try_from(block % 251).unwrap()), block * 4096).await.unwrap();
            file.sync().await.unwrap();
            fs::replace_file("/data/synced".as_ref(), (block + 1).to_le_bytes().to_vec()).await.unwrap();
            sleep(Duration::from_millis(3)).await;
        }
    }));
}

/// One seed of faults: cuts, delays, crashes, power losses and restarts, with clients that ask all the while.
fn run_with_faults(seed: u64) -> u64 {
    let world = World::new(seed);
    let mut random = world.random();
    let machines: Vec<Machine> = (0..4).map(|index| world.machine(&format!("machine-{index}"))).collect();
    machines.iter().for_each(|machine| start_machine(&world, machine));
    let client = world.machine("client");
    for index in 0..8 {
        let host = format!("machine-{}", index % 4);
        let asking = async move {
            loop {
                sleep(Duration::from_millis(20)).await;
                let connecting = timeout(Duration::from_secs(3), Stream::connect(&host, 9092));
                let Ok(Ok(stream)) = connecting.await else { continue };
                while matches!(
                    timeout(Duration::from_secs(2), ask(&stream, b"a word that comes back")).await,
                    Ok(Ok(()))
                ) {}
            }
        };
        drop(world.spawn_client(&client, asking));
    }
    for _ in 0..30 {
        let pause = random.within(1..200);
        world.run_for(Duration::from_millis(pause));
        let machine = random.pick(&machines).clone();
        match random.below(6) {
            0 => world.network().cut(&machine, &client),
            1 => world.network().cut_one_way(&client, &machine),
            2 => world.network().heal_all(),
            3 => world.network().delay(&machine, &client, Duration::from_millis(1)..Duration::from_millis(50)),
            4 if machine.is_up() => machine.crash(*random.pick(&[Crash::Kill, Crash::PowerLoss])),
            _ if !machine.is_up() => {
                machine.up();
                start_machine(&world, &machine);
            }
            _ => {}
        }
    }
    world.trace_hash()
}

#[test]
fn any_mix_of_faults_replays_from_its_seed_and_loses_nothing_that_was_synced() {
    for seed in 0..5 {
        assert_eq!(run_with_faults(seed), run_with_faults(seed), "seed {seed}");
    }
}
