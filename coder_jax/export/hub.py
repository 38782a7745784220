"""An export on its way out: to the Hugging Face Hub, or into a bucket."""

from pathlib import Path

from coder_jax.models.hf_files import hub_errors
from data_pipeline.files.buckets import (
    address,
    explained,
    file_sizes,
    open_bucket,
    publish_folder,
)
from data_pipeline.files.identity import ENCODER
from data_pipeline.process.errors import BadInput


def push_to_hub(folder: str | Path, repo: str, *, private: bool = False) -> str:
    """Uploads an export to the Hugging Face Hub, making the repository if need be.

    Returns:
      The address of the model.

    Raises:
      BadInput: not logged in, no right to write there, or no network.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        url = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(
            folder_path=str(folder), repo_id=repo, commit_message="Upload of a coder_jax export"
        )
    except hub_errors() as error:
        raise BadInput(
            f"{folder} was not uploaded to {repo} ({type(error).__name__}: {error}); the folder "
            "itself is complete. Log in with 'hf auth login', check the name, and try again"
        ) from error
    return str(url)


def publish_export(folder: Path, out: Path) -> None:
    """Copy an export into a bucket; an earlier export there is replaced.

    Raises:
        BadInput: if something else is there, or the bucket cannot be written to.
    """
    with explained(address(out), "read"):
        earlier = ENCODER.file in file_sizes(*open_bucket(address(out)))
    publish_folder(folder, out, "config.json", overwrite=earlier)
