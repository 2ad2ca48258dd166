"""Translates with OpenNMT-py and prints how long it took; runs in an interpreter of its own that has OpenNMT-py.

    PYTHON benchmarks/peers/opennmt_search.py MODEL.pt PIECES BEAM_WIDTH BATCH_SIZE THREADS

PIECES holds segmented sentences. Prints one JSON object: seconds, words and sentences. Loading the model and a first
translation are not counted.
"""

import json
import os
import sys
import tempfile
import time

WORD_MARK = "\u2581"


def main(model: str, pieces: str, beam_width: str, batch_size: str, threads: str) -> None:
    """Translates once for warming up, once for the clock."""
    os.environ["OMP_NUM_THREADS"] = threads
    import torch
    from onmt.inference_engine import InferenceEnginePY
    from onmt.opts import translate_opts
    from onmt.utils.parse import ArgumentParser

    torch.set_num_threads(int(threads))
    output = tempfile.NamedTemporaryFile(suffix=".out", delete=False).name  # noqa: SIM115
    parser = ArgumentParser()
    translate_opts(parser)
    options = parser.parse_args(
        ["-model", model, "-src", pieces, "-output", output, "-beam_size", beam_width, "-batch_size", batch_size,
         "-batch_type", "sents", "-gpu", "-1", "-max_length_ratio", "2", "-max_length", "250"]
    )  # fmt: skip
    ArgumentParser.validate_translate_opts(options)
    ArgumentParser._get_all_transform_translate(options)
    ArgumentParser._validate_transforms_opts(options)
    ArgumentParser.validate_translate_opts_dynamic(options)
    engine = InferenceEnginePY(options)
    with open(pieces, encoding="utf-8") as file:
        lines = file.read().splitlines()
    with torch.no_grad():
        engine.infer_list(lines[:2])
        start = time.perf_counter()
        _, predictions = engine.infer_list(lines)
        seconds = time.perf_counter() - start
    texts = ["".join(prediction[0].split()).replace(WORD_MARK, " ") for prediction in predictions]
    words = sum(len(text.split()) for text in texts)
    print(json.dumps({"seconds": seconds, "words": words, "sentences": len(texts), "texts": texts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
