"""No password, key or token stands in what is shown or kept, however it was written; everything else does."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater.cli.fault import save_fault
from flatwater.cli.main import main
from flatwater_watch.masking import MASK, mask_secrets, mask_words, names_secret

NAMES = ["password", "passwd", "secret", "token", "api-key", "apiKey", "API_KEY", "AWS_SECRET_ACCESS_KEY", "credential"]
NAMES += ["auth", "authToken", "PGPASSWORD", "model.api_key", "db-password", "MYSQL_PWD", "AWS_ACCESS_KEY_ID", "sig"]
NAMES += ["X-Amz-Signature", "client_secret", "userNamePassword", "credentials", "WANDB_API_KEY"]
PLAIN = ["max-tokens", "tokenizer", "key-dim", "no-auth", "password-file", "author", "sort-key", "monkey", "lr", "keys"]
PLAIN += ["bypass", "compass", "token_count", "primary_key", "without-password", "turkey", "run"]
TEXTS = [
    "python train.py --{} {}",
    "curl https://h/x?a=1&{}={}",
    "{}={} ./run",
    "--{}={}",
    '{{"{}": "{}"}}',
    "{} = '{}'",
]
TEXTS += [
    "['--x', '--{}', '{}']",
    "f(--{}={})",
    "-{} {}",
    "a --b={}={}",
    "Could not open: --{}={}, again",
    "\"{}='{}'\"",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_is_masked_in_each_spelling(name: str) -> None:
    assert names_secret(name)
    for text in TEXTS:
        shown = mask_secrets(text.format(name, "hunter2"))
        assert "hunter2" not in shown, text
        assert MASK in shown
        assert name in shown
        assert mask_secrets(shown) == shown
    for words in (["x", f"--{name}", "a b,&'c"], ["x", f"--{name}=a b,&'c"], ["env", f"{name}=a b,&'c", "x"]):
        assert "b,&" not in " ".join(mask_words(words))
        assert len(mask_words(words)) == len(words)


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_none_stays(name: str) -> None:
    assert not names_secret(name)
    for text in TEXTS:
        assert mask_secrets(text.format(name, "hunter2")) == text.format(name, "hunter2")
    words = ["python", "-m", "x", f"--{name}", "hunter2", f"{name}=hunter2"]
    assert mask_words(words) == words


@pytest.mark.parametrize(
    "url",
    [
        "s3://hunter2:hunter2@bucket/path",
        "s3://AKIA:hunter2/hunter2+hunter2@bucket/x",
        "https://hunter2@github.com/a/b.git",
        "postgresql+psycopg://user:hunter2@db:5432/x",
        "https://h/x?X-Amz-Credential=hunter2&X-Amz-Signature=hunter2",
        "https://account.blob.core.windows.net/c?sv=1&sig=hunter2%3D",
        "https://maps/x?key=hunter2",
        "Authorization: Bearer hunter2",
        "curl -H 'X-Api-Key: hunter2' https://h",
        "the server said: bearer hunter2.abcdefgh is old",
        "ghp_hunter2hunter2hunter2hunter2",
        "hf_hunter2hunter2hunter2hunter2",
        "https://h/x#access_token=hunter2",
    ],
)
def test_urls_headers_and_known_keys_are_masked(url: str) -> None:
    shown = mask_secrets(url)
    assert "hunter2" not in shown
    assert MASK in shown
    assert mask_secrets(shown) == shown
    assert "hunter2" not in shlex.join(mask_words(["flatwater", "runs", url]))


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/a@b/c",
        "https://host:8080/@name",
        "file:///home/user@host/x",
        "algorithm: expected ddpg, got 'x'",
        "token: expected 3",
        "rows = sorted(rows, key=len)",
        "learner.lr = 3: expected more",
        "a bearer of news, a basic income",
        "user@example.com",
        "error: the key is missing",
        "sk-learn, hf_hub",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert mask_secrets(text) == text


@given(st.text(alphabet="-= \"'\\:/@?&,aP.\n", max_size=60).map(lambda text: text.replace("P", "password")))
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask_secrets(mask_secrets(text)) == mask_secrets(text)


def test_megabytes_are_read_in_one_pass() -> None:
    for unit in ("a", "a=", "-", "--password", "password=", "://", "://a:", "'", "\\'", "=' ", "bearer ", "eyJ"):
        shown = mask_secrets(unit * 100_000)
        assert len(shown) <= 100_000 * (len(unit) + 6)


def test_no_message_and_no_fault_report_repeats_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (
        ["runs", "s3://AKIA:hunter2@bucket/x?"],
        ["x --key hunter2"],
        ["--token=hunter2"],
    ):
        assert main(words) == 2
    assert "hunter2" not in "".join(capsys.readouterr())
    save_fault(ValueError("https://u:hunter2@h/"), ["resume", "--password=hunter2", "--key", "hunter2"])
    assert ["hunter2" in file.read_text() for file in Path(".flatwater").iterdir()] == [False]
