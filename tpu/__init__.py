"""Cloud TPUs: what a training step becomes there. Installed as `gnmt_tf.tpu`; imports gnmt_tf and never the reverse."""
