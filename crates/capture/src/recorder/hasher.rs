//! Identifiers to keyed hashes. In: session ids, credentials, account ids. Out: numbers that say
//! nothing to anybody without the dataset's key, and nothing across datasets.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The key's file in the dataset's folder.
const KEY_FILE: &str = "dataset.key";
const KEY_BYTES: usize = 32;

/// HMAC-SHA-256 with a dataset's key, cut to 64 bits.
#[derive(Clone)]
pub struct Hasher(Hmac<Sha256>);

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hasher").field(&self.key_id()).finish()
    }
}

impl Hasher {
    /// With the key of the dataset at `root`; a new key is made, readable by its owner alone, where
    /// there is none.
    ///
    /// # Errors
    /// The key cannot be read or written, is not a key, or no randomness is to be had.
    pub fn open(root: &Path) -> io::Result<Self> {
        let path = root.join(KEY_FILE);
        let key = match fs::read(&path) {
            Ok(key) => key,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path)?,
            Err(error) => return Err(error),
        };
        if key.len() != KEY_BYTES {
            let why = format!("{KEY_FILE} does not hold {KEY_BYTES} bytes; record to a new folder");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Self::with_key(&key)
    }

    fn with_key(key: &[u8]) -> io::Result<Self> {
        let keyed = Hmac::new_from_slice(key);
        keyed.map(Self).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }

    /// The hash of `value`. Equal values of different `domain`s (`session`, `caller` …) differ.
    pub fn hash(&self, domain: &str, value: &[u8]) -> u64 {
        let mut mac = self.0.clone();
        mac.update(domain.as_bytes());
        // A byte that no domain holds keeps ("ab", "c") and ("a", "bc") apart.
        mac.update(&[0]);
        mac.update(value);
        let digest = mac.finalize().into_bytes();
        digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }

    /// Names the key without giving it away.
    pub fn key_id(&self) -> String {
        format!("{:016x}", self.hash("key-id", &[]))
    }
}

fn create(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = vec![0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(&key)?;
    file.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2 (key "Jefe"), against the bare HMAC: the first eight bytes of its digest.
    #[test]
    fn the_hash_is_hmac_sha_256() {
        let mut mac = Hasher::with_key(b"Jefe").unwrap().0;
        mac.update(b"what do ya want for nothing?");
        assert_eq!(mac.finalize().into_bytes()[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
    }

    #[test]
    fn keys_are_kept_and_differ_between_datasets() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Hasher::open(one.path()).unwrap();
        assert_eq!(first.hash("session", b"a"), Hasher::open(one.path()).unwrap().hash("session", b"a"));
        assert_ne!(first.hash("session", b"a"), first.hash("caller", b"a"));
        assert_ne!(first.hash("session", b"a"), Hasher::open(other.path()).unwrap().hash("session", b"a"));
        assert!(!format!("{first:?}").contains("Jefe"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(one.path().join(KEY_FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        fs::write(one.path().join(KEY_FILE), b"short").unwrap();
        assert!(Hasher::open(one.path()).unwrap_err().to_string().contains("new folder"));
    }
}
