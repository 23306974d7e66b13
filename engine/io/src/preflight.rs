//! Before a broker starts: does this machine give what it needs? One clear sentence with the remedy for each lack.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::driver::Driver;
use crate::limits::OPEN_FILES_MIN;
use crate::memory::{Arena, BLOCK};
use crate::uring::Uring;

/// Deferred task work, submit-all and messages between rings are all there from this version on.
const KERNEL_MIN: (u32, u32) = (6, 1);
const PROBE: &str = ".direct-io-probe";

/// What is lacking, in the order in which it is looked for.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error("Linux {version} is too old: io_uring with deferred task work needs 6.1 or newer; start on a newer kernel")]
    KernelTooOld { version: String },
    #[error(
        "io_uring is refused ({error}; kernel.io_uring_disabled={disabled}): set the sysctl kernel.io_uring_disabled to 0, and \
         in a container allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile"
    )]
    RingRefused { error: io::Error, disabled: String },
    #[error("io_uring is missing in this kernel ({0}): use a kernel built with CONFIG_IO_URING, 6.1 or newer")]
    RingMissing(io::Error),
    #[error(
        "io_uring gets no memory ({error}; locked memory is limited to {limit}): raise `ulimit -l` (LimitMEMLOCK in systemd) to \
         8 MiB or more"
    )]
    TooLittleLockedMemory { error: io::Error, limit: String },
    #[error("io_uring cannot be set up: {0}")]
    RingBroken(io::Error),
    #[error(
        "only {limit} files may be open, the broker needs {OPEN_FILES_MIN}: raise `ulimit -n` (LimitNOFILE in systemd), 100000 is \
         a good value"
    )]
    TooFewFiles { limit: u64 },
    #[error("data folder {} cannot be used: {error}", folder.display())]
    FolderUnusable { folder: PathBuf, error: io::Error },
    #[error(
        "data folder {} is on {file_system}, which gives no direct I/O ({error}): put it on ext4 or XFS on a local disk",
        folder.display()
    )]
    NoDirectIo { folder: PathBuf, file_system: String, error: io::Error },
}

/// Looks at the machine and at each data folder (made when it is missing). To be called before the first shard.
pub fn preflight(data_folders: &[PathBuf]) -> Result<(), PreflightError> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if kernel_version(&release).is_some_and(|version| version < KERNEL_MIN) {
        return Err(PreflightError::KernelTooOld { version: release.trim().to_owned() });
    }
    Uring::new().map(|mut driver| driver.stop()).map_err(ring_error)?;
    match open_files_limit() {
        Some(limit) if limit < OPEN_FILES_MIN => return Err(PreflightError::TooFewFiles { limit }),
        _ => {}
    }
    data_folders.iter().try_for_each(|folder| check_folder(folder))
}

/// How many files this process may have open, sockets included; `None`: unlimited, or the kernel does not say.
#[must_use]
pub fn open_files_limit() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    soft_limit(&limits, "Max open files").and_then(|limit| limit.parse().ok())
}

/// `6.18.44-something` is (6, 18).
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The first number behind the name in /proc/self/limits (it may be `unlimited`).
fn soft_limit<'a>(limits: &'a str, name: &str) -> Option<&'a str> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
}

fn ring_error(error: io::Error) -> PreflightError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
            let disabled = disabled.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
            PreflightError::RingRefused { error, disabled }
        }
        Some(libc::ENOSYS) => PreflightError::RingMissing(error),
        Some(libc::ENOMEM) => {
            let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
            let limit = soft_limit(&limits, "Max locked memory").unwrap_or("unknown").to_owned();
            PreflightError::TooLittleLockedMemory { error, limit }
        }
        _ => PreflightError::RingBroken(error),
    }
}

fn check_folder(folder: &Path) -> Result<(), PreflightError> {
    let unusable = |error| PreflightError::FolderUnusable { folder: folder.to_owned(), error };
    fs::create_dir_all(folder).map_err(unusable)?;
    let probe = folder.join(PROBE);
    // Whether files can be made at all is a question of its own.
    fs::File::create(&probe).map_err(unusable)?;
    let direct = write_direct(&probe);
    let removed = fs::remove_file(&probe);
    direct.map_err(|error| {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let file_system = file_system_of(&mounts, &folder).unwrap_or("an unknown file system").to_owned();
        PreflightError::NoDirectIo { folder, file_system, error }
    })?;
    removed.map_err(unusable)
}

fn write_direct(probe: &Path) -> io::Result<()> {
    let mut writer = Arena::new(BLOCK).chunk(BLOCK).expect("the budget is one block");
    let block = writer.append(&[0; BLOCK]).expect("the chunk is one block");
    let mut file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(probe)?;
    // Aligned memory, whole block: what a segment does.
    file.write_all(&writer.lease(block))
}

/// The type of the mount that holds a path: of the mounts whose point is a prefix of it the longest, of equal ones the last.
fn file_system_of<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        path.starts_with(point).then_some((point.len(), after.split(' ').next()?))
    });
    mounts.max_by_key(|(len, _)| *len).map(|(_, file_system)| file_system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(kernel_version("6.18.44-fc-v857\n"), Some((6, 18)));
        assert!(kernel_version("6.0.19").unwrap() < KERNEL_MIN);
        assert!(kernel_version("5.15.0-91-generic").unwrap() < KERNEL_MIN);
        assert!(kernel_version("6.10").unwrap() > KERNEL_MIN);
        assert_eq!(kernel_version("strange"), None);
    }

    #[test]
    fn the_soft_limit_is_the_first_number() {
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024      524288      files\n\
                      Max locked memory         unlimited   unlimited            bytes\n";
        assert_eq!(soft_limit(limits, "Max open files"), Some("1024"));
        assert_eq!(soft_limit(limits, "Max locked memory"), Some("unlimited"));
        assert_eq!(soft_limit(limits, "Max cpu time"), None);
    }

    #[test]
    fn the_innermost_mount_names_the_file_system() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:26 / /data rw shared:4 - overlay overlay rw\n\
                      31 30 0:27 / /data/fast rw - tmpfs tmpfs rw\n";
        assert_eq!(file_system_of(mounts, Path::new("/data/fast/topic")), Some("tmpfs"));
        assert_eq!(file_system_of(mounts, Path::new("/data/faster")), Some("overlay"));
        assert_eq!(file_system_of(mounts, Path::new("/home")), Some("ext4"));
    }

    #[test]
    fn each_lack_of_the_ring_has_its_sentence() {
        let text = |code| ring_error(io::Error::from_raw_os_error(code)).to_string();
        assert!(text(libc::EPERM).contains("kernel.io_uring_disabled to 0"));
        assert!(text(libc::ENOSYS).contains("CONFIG_IO_URING"));
        assert!(text(libc::ENOMEM).contains("ulimit -l"));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = preflight(&[PathBuf::from("/proc/none/data")]).unwrap_err();
        assert!(error.to_string().contains("/proc/none/data"), "{error}");
    }
}
