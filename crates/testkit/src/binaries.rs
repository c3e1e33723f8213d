//! Where the programs of a plane are, and how they get there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;
use tokio::sync::OnceCell;

/// The root folder of the repository.
pub fn repository() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// The programs that the Go module `tests/control-plane` provides.
#[derive(Debug, Clone)]
pub struct ControlPlaneBinaries {
    folder: PathBuf,
    assets: Option<PathBuf>,
}

impl ControlPlaneBinaries {
    /// Builds them when the module has changed since the last time.
    ///
    /// `KUBEBUILDER_ASSETS`, if set, names a folder whose etcd, kube-apiserver and kubectl are taken instead.
    pub async fn locate() -> Result<Self> {
        static BUILT: OnceCell<ControlPlaneBinaries> = OnceCell::const_new();
        BUILT.get_or_try_init(build_control_plane).await.cloned()
    }

    /// The multi-program binary.
    pub fn control_plane(&self) -> PathBuf {
        self.folder.join("control-plane")
    }

    /// The fake kubelets.
    pub fn kwok(&self) -> PathBuf {
        self.folder.join("kwok")
    }

    /// The chart renderer.
    pub fn helm(&self) -> PathBuf {
        self.folder.join("helm")
    }

    /// Program and leading arguments that run `program`.
    pub fn argv(&self, program: &str) -> Vec<String> {
        match &self.assets {
            Some(assets) if matches!(program, "etcd" | "kube-apiserver" | "kubectl") => {
                vec![text(&assets.join(program))]
            }
            _ => vec![text(&self.control_plane()), program.to_owned()],
        }
    }
}

async fn build_control_plane() -> Result<ControlPlaneBinaries> {
    let root = repository();
    let folder = root.join("target/control-plane");
    let status = Command::new(root.join("tests/control-plane/build.sh"))
        .arg(&folder)
        .status()
        .await
        .context("failed to run tests/control-plane/build.sh")?;
    if !status.success() {
        bail!("tests/control-plane/build.sh failed: {status}");
    }
    let assets = std::env::var_os("KUBEBUILDER_ASSETS")
        .map(PathBuf::from)
        .filter(|path| !path.as_os_str().is_empty());
    Ok(ControlPlaneBinaries { folder, assets })
}

/// Sluice's own programs, from the profile that the running executable was built with.
#[derive(Debug, Clone)]
pub struct SluiceBinaries {
    folder: PathBuf,
}

impl SluiceBinaries {
    /// Brings them up to date with `cargo build`, once a process. Who has built them already, as part of the whole
    /// workspace, says so by the variable `SLUICE_TESTKIT_BUILT`: another selection of packages would be another build.
    pub async fn locate() -> Result<Self> {
        static BUILT: OnceCell<SluiceBinaries> = OnceCell::const_new();
        BUILT.get_or_try_init(build_sluice).await.cloned()
    }

    /// Path of `sluice-webhook`, `sluice-scheduler` and so on.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

async fn build_sluice() -> Result<SluiceBinaries> {
    let executable = std::env::current_exe()?;
    let mut folder = executable.parent().context("the executable has no folder")?;
    if folder.ends_with("deps") {
        folder = folder.parent().context("the executable has no folder")?;
    }
    let built = SluiceBinaries {
        folder: folder.to_owned(),
    };
    if std::env::var_os("SLUICE_TESTKIT_BUILT").is_some() {
        return Ok(built);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--quiet",
        "--bins",
        "--package=sluice-webhook",
        "--package=sluice-scheduler",
    ]);
    if folder.file_name().is_some_and(|profile| profile == "release") {
        command.arg("--release");
    }
    if let Some(target) = folder.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command
        .current_dir(repository())
        .status()
        .await
        .context("failed to run cargo")?;
    if !status.success() {
        bail!("cargo build of the Sluice binaries failed: {status}");
    }
    Ok(built)
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
