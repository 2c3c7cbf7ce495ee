use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::HANG;
use crate::sys;

const POLL: Duration = Duration::from_millis(1);

/// A child that dies with this process, even when that is killed: the kernel sees to it.
///
/// The kernel watches the *thread* that made the child, and a test's thread ends with its test. So one thread makes
/// all children, and lives as long as the process.
#[derive(Debug)]
pub struct Tied {
    child: Child,
}

type Order = (Command, Sender<io::Result<Child>>);

impl Tied {
    /// The program as a command to add arguments to. It is started by another that asks for the signal and then
    /// becomes it, so that the child's pid is the program's.
    pub fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    }

    /// Of a [`command`](Self::command), or of another that asks for its parent's death signal.
    pub fn spawn(command: Command) -> anyhow::Result<Self> {
        let (answer, answered) = channel();
        let what = format!("cannot start {command:?}");
        maker().send((command, answer)).context("the thread that makes children has ended")?;
        let child = answered.recv().context("the thread that makes children has ended")?.context(what)?;
        Ok(Self { child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// `kill -9`, and it is gone when this returns.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn signal(&self, signal: i32) -> anyhow::Result<()> {
        Ok(sys::signal(self.pid(), signal)?)
    }

    /// Freezes it: alive to the kernel, dead to everybody else. Its threads stand still when this returns: a signal is
    /// obeyed only when the first of them gets to run, and on a busy machine the others go on until then.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal(libc::SIGSTOP)?;
        let until = Instant::now() + HANG;
        while !self.stands_still()? {
            ensure!(Instant::now() < until, "process {} does not stop", self.pid());
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn stands_still(&self) -> io::Result<bool> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            // One that has ended since stands still, too.
            if !state(&thread?.path()).is_none_or(|state| "TtZX".contains(state)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// As [`is_running`](Self::is_running) tells, for who may only look.
    pub fn has_ended(&self) -> bool {
        state(Path::new(&format!("/proc/{}", self.pid()))).is_none_or(|state| "ZX".contains(state))
    }

    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(libc::SIGCONT)
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.kill();
    }
}

/// The kernel's letter for what a process or a thread is doing; none when it is gone.
fn state(of: &Path) -> Option<char> {
    let stat = fs::read_to_string(of.join("stat")).ok()?;
    // The state comes after the name, in which anything may be.
    stat.rsplit_once(") ")?.1.chars().next()
}

fn maker() -> Sender<Order> {
    static MAKER: OnceLock<Sender<Order>> = OnceLock::new();
    let start = || {
        let (orders, ordered) = channel::<Order>();
        let make = move || {
            for (mut command, answer) in ordered {
                let _ = answer.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("children".to_owned()).spawn(make).expect("a thread");
        orders
    };
    MAKER.get_or_init(start).clone()
}
