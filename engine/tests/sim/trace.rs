//! What a run says: nothing, or with `SAKIA_SIM_SEED` or `SAKIA_SIM_TRACE` set every line of every process, with the
//! virtual time and the machine's shard in front.

use std::fmt;
use std::sync::Once;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Virtual time and shard, where there are any.
struct VirtualTime;

impl FormatTime for VirtualTime {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let Some(shard) = sakia_io::shard_name() else { return write!(w, "       - {:<16}", "world") };
        let at = sakia_io::now().as_duration();
        write!(w, "{:>4}.{:06} {shard:<16}", at.as_secs(), at.subsec_micros())
    }
}

/// Whether a person follows this run.
pub fn is_on() -> bool {
    std::env::var_os("SAKIA_SIM_SEED").is_some() || std::env::var_os("SAKIA_SIM_TRACE").is_some()
}

/// Lets the processes' lines through, if they are wanted.
pub fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if is_on() {
            let filter = std::env::var("SAKIA_SIM_TRACE").unwrap_or_default();
            let filter = match filter.as_str() {
                "debug" => "debug,openraft=warn".to_owned(),
                other if other.contains('=') => filter,
                _ => "info,openraft=warn".to_owned(),
            };
            let lines = tracing_subscriber::fmt().with_timer(VirtualTime).with_ansi(false).with_target(false);
            lines.with_env_filter(EnvFilter::new(filter)).with_writer(std::io::stderr).init();
        }
    });
}
