//! What can be done to, and is told about, a child process of a plane.

/// A signal for a child's whole process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: end in good order.
    Term,
    /// SIGKILL: gone at once.
    Kill,
    /// SIGINT.
    Int,
    /// SIGSTOP: frozen until [`Signal::Cont`].
    Stop,
    /// SIGCONT.
    Cont,
}

impl Signal {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Kill => "KILL",
            Self::Int => "INT",
            Self::Stop => "STOP",
            Self::Cont => "CONT",
        }
    }
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Process id it had.
    pub pid: u32,
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Name of the signal that ended it.
    pub signal: Option<String>,
}
