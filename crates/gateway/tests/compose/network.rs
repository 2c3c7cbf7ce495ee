use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_testkit::HANG;
use tidegate_testkit::services::{Tied, program};

const POLL: Duration = Duration::from_millis(10);

/// A network that nothing but its containers is in: a switch in a namespace of its own.
pub struct Network {
    switch: Tied,
    names: Vec<String>,
    /// For everything that containers leave behind; gone with the network.
    pub dir: TempDir,
}

impl Network {
    /// With an address for each name.
    pub fn new(names: &[&str]) -> Self {
        for (name, package) in [("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")] {
            program(name, package).unwrap();
        }
        let dir = tempfile::Builder::new().prefix("tidegate-compose-").tempdir().unwrap();
        let mut command = Tied::command("unshare");
        command.args(["--net", "--", "sleep", "infinity"]).stdin(Stdio::null());
        let switch = Tied::spawn(command).unwrap();
        let comm = PathBuf::from(format!("/proc/{}/comm", switch.pid()));
        eventually(|| std::fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep").then_some(()));
        let network = Self { switch, names: names.iter().map(|name| (*name).to_owned()).collect(), dir };
        network.run("ip link add stack type bridge && ip link set stack up").unwrap();
        network.run("ip address add 10.213.0.1/24 dev stack").unwrap();
        let hosts = network.names.iter().map(|name| format!("{} {name}\n", network.address(name)));
        let hosts = format!("127.0.0.1 localhost\n{}", hosts.collect::<String>());
        std::fs::write(network.hosts(), hosts).unwrap();
        // Whoever gives up root in a container still has to find its way into it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(network.dir.path(), open).unwrap();
        network
    }

    pub fn address(&self, name: &str) -> String {
        let place = self.names.iter().position(|known| known == name).unwrap();
        format!("10.213.0.{}", place + 10)
    }

    /// Names and addresses, as in /etc/hosts.
    pub fn hosts(&self) -> PathBuf {
        self.dir.path().join("hosts")
    }

    /// Lines of shell that plug whoever runs them into the switch, under a name; whoever had that before is unplugged.
    pub fn plug(&self, name: &str) -> String {
        let (switch, address) = (self.switch.pid(), self.address(name));
        let number = address.rsplit('.').next().unwrap();
        let port = format!("port{number}");
        // The same for every container of that name, as engines do it: nobody has to forget an old one.
        let link = format!("02:42:0a:d5:00:{number}");
        format!(
            "ip link set lo up\n\
             nsenter --target {switch} --net ip link delete {port} 2> /dev/null || :\n\
             ip link add eth0 address {link} type veth peer name {port} netns {switch}\n\
             nsenter --target {switch} --net ip link set {port} master stack up\n\
             ip address add {address}/24 dev eth0\n\
             ip link set eth0 up\n"
        )
    }

    /// What a line of shell on the switch says.
    pub fn run(&self, line: &str) -> Result<String, String> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.switch.pid().to_string(), "--net", "--", "sh", "-c", line]);
        let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&stdout).into_owned();
        if status.success() {
            return Ok(said);
        }
        Err(format!("{line}: {said} {}", String::from_utf8_lossy(&stderr)))
    }
}

pub fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + HANG;
    loop {
        match ask() {
            Some(found) => return found,
            None if Instant::now() > deadline => panic!("it did not happen within {HANG:?}"),
            None => std::thread::sleep(POLL),
        }
    }
}
