"""Uploads of exports: what is sent, and what to do when it fails."""

import pytest
from tiny_bert import write_tokenizer

from coder_jax.export.hub import push_to_hub
from data_pipeline.process.errors import BadInput


def test_push_to_hub_uploads_the_folder(tmp_path, monkeypatch):
    import huggingface_hub

    calls = []

    class Api:
        def create_repo(self, repo, **arguments):
            calls.append(("create_repo", repo, arguments))
            return f"https://hub/{repo}"

        def upload_folder(self, **arguments):
            calls.append(("upload_folder", arguments["repo_id"], arguments["folder_path"]))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    write_tokenizer(tmp_path)
    assert push_to_hub(tmp_path, "me/model", private=True) == "https://hub/me/model"
    assert calls == [
        ("create_repo", "me/model", {"private": True, "exist_ok": True}),
        ("upload_folder", "me/model", str(tmp_path)),
    ]


def test_push_to_hub_says_what_to_do_when_it_fails(tmp_path, monkeypatch):
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    def no_connection(*_, **__):
        raise HfHubHTTPError.__bases__[0]("name or service not known")

    for _ in range(2):  # tests run offline; then as if there were a network that leads nowhere
        with pytest.raises(BadInput, match="(?s)was not uploaded to me/model .*hf auth login"):
            push_to_hub(tmp_path, "me/model")
        monkeypatch.setattr(HfApi, "create_repo", no_connection)
