//! The checkout that the chores work on: where it is, its files, its packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    // Two folders above this package, wherever the command is run.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package
        .ancestors()
        .nth(2)
        .context("failed to find the workspace above its xtask package")?;
    Ok(root.to_path_buf())
}

/// Runs a program in the checkout and returns what it prints.
pub(crate) fn output(root: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output()
        .with_context(|| format!("failed to run `{}`", shown()))?;
    if !output.status.success() {
        bail!(
            "`{}` failed: {}",
            shown(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` printed something other than text", shown()))
}

/// Paths, from the root, of all files that are or would be committed.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<String>> {
    let listing = output(
        root,
        "git",
        &["ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    )?;
    let files: Vec<String> = listing
        .split('\0')
        .filter(|path| !path.is_empty() && root.join(path).is_file())
        .map(str::to_owned)
        .collect();
    ensure!(!files.is_empty(), "git lists no file: is this a checkout?");
    Ok(files)
}

/// What `cargo metadata` says of all packages that the workspace builds from.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
}

/// One package.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One entry of a package's dependency tables.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

/// Reads the workspace's metadata, of what is built on this platform.
pub(crate) fn metadata(root: &Path) -> anyhow::Result<Metadata> {
    // Crates for other platforms are not here after a build, and there may be no network to fetch them.
    let version = output(root, "rustc", &["-vV"])?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc does not name its host")?;
    let json = output(
        root,
        "cargo",
        &[
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            host,
        ],
    )?;
    serde_json::from_str(&json).context("failed to read the answer of cargo metadata")
}

impl Metadata {
    /// The workspace's own packages.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Packages from elsewhere.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| !self.workspace_members.contains(&package.id))
    }
}
