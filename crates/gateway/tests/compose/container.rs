use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_testkit::services::Tied;

use crate::file::{Service, root};
use crate::image::{Image, quoted};
use crate::network::{Network, eventually};

const POLL: Duration = Duration::from_millis(200);
const SIGTERM: i32 = 15;

/// A service in namespaces of its own, with this machine's files as its image and changes to them kept apart.
pub struct Container<'a> {
    service: Service<'a>,
    image: Image,
    /// What it printed, stdout and stderr alike.
    log: PathBuf,
    process: Tied,
    /// What is process 1 inside.
    first: u32,
}

/// What it runs instead of its service's command, for as long as it is left alone.
const IDLE: [&str; 2] = ["sleep", "infinity"];

impl<'a> Container<'a> {
    pub fn start(network: &Network, service: Service<'a>) -> Self {
        let image = Image::of(&service);
        let mut words = image.entrypoint.clone();
        let command = service.command();
        words.extend(if command.is_empty() { image.command.clone() } else { command });
        Self::start_with(network, service, image, words)
    }

    /// Everything but the service itself.
    pub fn start_idle(network: &Network, service: Service<'a>) -> Self {
        Self::start_with(network, service, Image::of(&service), IDLE.map(str::to_owned).to_vec())
    }

    fn start_with(network: &Network, service: Service<'a>, image: Image, words: Vec<String>) -> Self {
        let place = |ending: &str| network.dir.path().join(format!("{}{ending}", service.name));
        let (script, log) = (place(".sh"), place(".log"));
        std::fs::write(&script, set_up(network, service, &image, &words, &place("-box"))).unwrap();
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Tied::command("unshare");
        command.args(["--mount", "--net", "--uts", "--ipc", "--", "sh"]).arg(script);
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let mut process = Tied::spawn(command).unwrap();
        let first = eventually(|| {
            assert!(process.is_running(), "{}: {}", service.name, std::fs::read_to_string(&log).unwrap());
            first_inside(process.pid())
        });
        Self { service, image, log, process, first }
    }

    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// As an engine does it: again and again, and no longer than the file says.
    pub fn wait_until_healthy(&mut self) {
        let check = &self.service.value["healthcheck"];
        let (start, interval) = (&check["start_period"], &check["interval"]);
        let retries = u32::try_from(check["retries"].as_u64().unwrap()).unwrap();
        let [start, interval] = [start, interval].map(|value| self.service.duration(value));
        let begun = Instant::now();
        while let Err(said) = self.check_health(self.service.duration(&check["timeout"])) {
            let name = self.service.name;
            assert!(self.process.is_running(), "{name} has ended\n{}", self.said());
            let late = begun.elapsed() > start + interval * retries;
            assert!(!late, "{name} is not healthy: {said}\n{}", self.said());
            std::thread::sleep(POLL);
        }
        eprintln!("{} is healthy after {:?}", self.service.name, begun.elapsed());
    }

    /// What the check says.
    pub fn check_health(&self, within: Duration) -> Result<String, String> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--mount", "--net", "--uts", "--ipc", "--pid"]);
        command.args(["--root", "--", "timeout", "--signal=KILL", &within.as_secs().to_string()]);
        command.args(self.image.as_user(self.service));
        command.args(self.image.in_environment(self.service)).args(self.service.health_check());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{}: {said}", output.status)) }
    }

    /// As `docker stop` begins: whether it ends in the time that the file gives it.
    pub fn stop(mut self) {
        let grace = self.service.duration(&self.service.value["stop_grace_period"]);
        let begun = Instant::now();
        let first = self.first.to_string();
        let sent = Command::new("kill").args([&format!("-{SIGTERM}"), &first]).status().unwrap();
        assert!(sent.success());
        while self.process.is_running() {
            assert!(begun.elapsed() < grace, "{} does not stop\n{}", self.service.name, self.said());
            std::thread::sleep(POLL);
        }
        eprintln!("{} stopped after {:?}", self.service.name, begun.elapsed());
    }
}

/// The child of whoever made the namespace of processes, once it has its own root.
fn first_inside(maker: u32) -> Option<u32> {
    let comm = std::fs::read_to_string(format!("/proc/{maker}/comm")).ok()?;
    let children = std::fs::read_to_string(format!("/proc/{maker}/task/{maker}/children")).ok()?;
    let first = children.split_whitespace().next().filter(|_| comm.trim() == "unshare")?.parse().ok()?;
    let root = std::fs::read_link(format!("/proc/{first}/root")).ok()?;
    (root != Path::new("/")).then_some(first)
}

/// What makes the namespaces, from the inside of all but the last, into those of the service, and becomes it.
fn set_up(network: &Network, service: Service<'_>, image: &Image, words: &[String], place: &Path) -> String {
    let hostname = service.value["hostname"].as_str().unwrap_or(service.name);
    std::fs::create_dir_all(place).unwrap();
    let place = place.display();
    let mut lines = format!(
        "set -eu\n{}hostname {hostname}\n\
         mount -t tmpfs tmpfs {place}\n\
         mkdir {place}/upper {place}/work {place}/root\n\
         root={place}/root\n\
         mount -t overlay overlay -o lowerdir=/,upperdir={place}/upper,workdir={place}/work $root\n\
         mount --rbind /dev $root/dev\n\
         cp {} $root/etc/hosts\n",
        network.plug(service.name),
        network.hosts().display(),
    );
    if service.value["read_only"] != true {
        lines.push_str("mount -t tmpfs -o mode=1777 tmpfs $root/tmp\n");
    }
    for (path, text) in &image.files {
        let (path, text) = (quoted(path), quoted(text));
        lines.push_str(&format!(
            "mkdir -p $(dirname $root{path})\nprintf %s {text} > $root{path}\nchmod 755 $root{path}\n"
        ));
    }
    for (source, target) in &image.parts {
        lines.push_str(&bind(source, target, true));
    }
    for (dir, owner) in &image.directories {
        lines.push_str(&format!("mkdir -p $root{dir}\nchown {owner} $root{dir}\n"));
    }
    for mount in service.mounts() {
        let source = if mount.source.starts_with('.') {
            root().join(&mount.source)
        } else {
            // Made by whoever is first, with the owner that its place in the image has.
            let volume = network.dir.path().join(format!("volume-{}", mount.source));
            let (path, owner) = (volume.display(), image.volume_owner);
            lines.push_str(&format!("[ -d {path} ] || {{ mkdir {path}; chown {owner} {path}; }}\n"));
            volume
        };
        lines.push_str(&bind(&source, &mount.target, mount.read_only));
    }
    if service.value["read_only"] == true {
        lines.push_str("mount -o remount,bind,ro $root\n");
    }
    let mut inside: Vec<String> = vec!["chroot".into(), format!("{place}/root")];
    inside.extend(image.as_user(service));
    inside.extend(image.in_environment(service));
    inside.extend(words.iter().cloned());
    let inside: Vec<_> = inside.iter().map(|word| quoted(word)).collect();
    let last = format!("mount -t proc proc {place}/root/proc && exec {}", inside.join(" "));
    format!("{lines}exec unshare --pid --fork --kill-child=KILL -- sh -c {}\n", quoted(&last))
}

fn bind(source: &Path, target: &str, read_only: bool) -> String {
    let (path, source_path) = (format!("$root{target}"), source.display());
    let make =
        if source.is_file() { format!("[ -e {path} ] || : > {path}") } else { format!("mkdir -p {path}") };
    let seal = if read_only { format!("mount -o remount,bind,ro {path}\n") } else { String::new() };
    format!("mkdir -p $(dirname {path})\n{make}\nmount --bind {source_path} {path}\n{seal}")
}
