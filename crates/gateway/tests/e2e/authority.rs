use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::{TempDir, tempdir};

/// Whom a gateway trusts to say who a server is. All of them have one name, so that only signatures tell them apart. Its
/// files are in a directory of its own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempdir().unwrap();
        // Servers run as users of their own.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("roots.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    /// The file that a gateway is told to trust.
    pub fn roots(&self) -> PathBuf {
        self.dir.path().join("roots.pem")
    }

    /// The files of the certificate and key of a server, or of a client.
    pub fn certify(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        // A certificate with its issuer's name looks self-signed to OpenSSL.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |ending| self.dir.path().join(format!("{name}.{ending}"));
        fs::write(file("crt"), certificate.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        fs::set_permissions(file("key"), fs::Permissions::from_mode(0o600)).unwrap();
        (file("crt"), file("key"))
    }
}

/// A server that runs as this user wants its key to itself. Where we are not root, it runs as we do.
pub fn give_to(user: &str, file: &std::path::Path) {
    if fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        assert!(Command::new("chown").arg(user).arg(file).status().unwrap().success());
    }
}
