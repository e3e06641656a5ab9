"""Models from elsewhere: Python code, exported programs, ONNX files, model libraries.

Only a Python file that the user names is executed; the other formats run no code from their files.
"""
