//! Figures: one JSON line each, appended to `target/bench/results.jsonl` of the workspace, and CPU time to get them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Appends a line `{"name":name,field:value,...}`. Values are written as they are.
pub(crate) fn append(name: &str, fields: &[(&str, String)]) {
    let mut line = format!("{{\"name\":\"{name}\"");
    for (field, value) in fields {
        write!(line, ",\"{field}\":{value}").expect("writing to a string");
    }
    line.push('}');
    println!("{line}");
    let folder = workspace().join("target/bench");
    std::fs::create_dir_all(&folder).expect("target/bench can be made");
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("results.jsonl"))
        .expect("results.jsonl can be opened");
    writeln!(file, "{line}").expect("results.jsonl can be written");
}

fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// How long this thread has been on a CPU: unlike a clock it does not count what other processes did meanwhile.
pub(crate) fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells the CPU time of a thread");
    let nanoseconds = text.split_whitespace().next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first field is a number"))
}

/// What one call of [`cpu_time`] adds to the difference of two.
pub(crate) fn cost_of_reading() -> Duration {
    const READINGS: u32 = 1000;
    let before = cpu_time();
    for _ in 1..READINGS {
        cpu_time();
    }
    cpu_time().saturating_sub(before) / READINGS
}
