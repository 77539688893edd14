-- Records that were put into a bundle for another installation.
ALTER TABLE routes ADD COLUMN handed_over INTEGER NOT NULL DEFAULT 0;
