#!/usr/bin/env python3
"""A Keras model whose embeddings lie in a store: tensorflow_model.py DIRECTORY

Imports the embeddings of a trained model, serves the same model from the store, writes it as a
SavedModel, and compares what the two and the loaded SavedModel answer.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf

import hps
import hps.tensorflow

USERS, ITEMS, DIM = 5_000, 2_000, 16


def click_model(user: tf.keras.layers.Layer, item: tf.keras.layers.Layer) -> tf.keras.Model:
    """Two tables and a dense network over their rows."""
    users = tf.keras.Input([1], dtype=tf.int64, name="user")
    items = tf.keras.Input([10], dtype=tf.int64, name="items")
    mean = tf.keras.layers.GlobalAveragePooling1D()(item(items))
    both = tf.keras.layers.concatenate([tf.keras.layers.Flatten()(user(users)), mean])
    hidden = tf.keras.layers.Dense(32, activation="relu")(both)
    return tf.keras.Model([users, items], tf.keras.layers.Dense(1, activation="sigmoid")(hidden))


def main() -> int:
    directory = pathlib.Path(sys.argv[1])
    path = directory / "store"
    tf.keras.utils.set_random_seed(1)
    user, item = tf.keras.layers.Embedding(USERS, DIM), tf.keras.layers.Embedding(ITEMS, DIM)
    trained = click_model(user, item)
    hps.import_table(path, "click/user", user.get_weights()[0])
    hps.import_table(path, "click/item", item.get_weights()[0])

    def layer(table: str) -> tf.keras.layers.Layer:
        return hps.tensorflow.LookupLayer("click", table, DIM, ps_config_file=path)

    served = click_model(layer("user"), layer("item"))
    served.set_weights(trained.get_weights()[2:])  # without those of the embeddings
    served.export(directory / "saved_model", verbose=False)
    loaded = tf.saved_model.load(directory / "saved_model")
    keys = [np.random.randint(USERS, size=(64, 1)), np.random.randint(ITEMS, size=(64, 10))]
    expected = trained(keys).numpy()
    difference = max(np.abs(answer(keys).numpy() - expected).max()
                     for answer in (served, loaded.serve))
    print(f"largest difference of 64 predictions: {difference:.1e}")
    return 0 if difference < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
