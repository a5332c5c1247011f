"""What `lint --fix` changes: codemods, their edits at positions, and the copies of files by which --undo restores them."""
